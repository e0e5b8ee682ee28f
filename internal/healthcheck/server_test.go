// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab"
)

func TestAServerWaitsForItsAddress(t *testing.T) {
	ns := lab.NewNetNS(t, "n1")
	var predecessor net.Listener
	ns.Do(func() {
		var err error
		if predecessor, err = net.Listen("tcp", "0.0.0.0:10256"); err != nil {
			t.Fatal(err)
		}
	})
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	s := NewServer("/healthz", "0.0.0.0:10256", hello, slog.New(slog.DiscardHandler))
	if address, err := s.State(); address != "" || err != nil {
		t.Errorf("before it runs: %q, %v", address, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go ns.Do(func() { ended <- s.Run(ctx) })
	until(t, func() bool {
		address, err := s.State()
		return address == "" && err != nil && strings.HasPrefix(err.Error(), "/healthz: ") && strings.Contains(err.Error(), "address already in use")
	})
	predecessor.Close()
	until(t, func() bool { address, err := s.State(); return address == "[::]:10256" && err == nil })
	for _, at := range []string{"127.0.0.1:10256", "[::1]:10256"} {
		var conn net.Conn
		var err error
		ns.Do(func() { conn, err = net.Dial("tcp", at) })
		if err != nil {
			t.Fatal(err)
		}
		if response, _, err := roundTrip(conn); err != nil || response.StatusCode != http.StatusTeapot {
			t.Errorf("%s: %v, %v", at, response, err)
		}
		conn.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func until(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %s", patience)
		}
	}
}
