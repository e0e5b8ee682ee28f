// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// files are where a pair is kept.
type files struct{ cert, key string }

func writePair(t testing.TB, f files, p pair) {
	t.Helper()
	for name, content := range map[string][]byte{f.cert: p.certificate, f.key: p.key} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func freshPair(t testing.TB, host string) pair {
	t.Helper()
	p, err := newPair(host, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serve has a handler answered over TLS until the test ends.
func serve(t testing.TB, f files, handler http.Handler, log *journal) net.Addr {
	t.Helper()
	certificate, err := NewCertificate(f.cert, f.key, func(time.Time) {}, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, certificate, handler, log.logger()) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr()
}

// trusting is a client that opens a connection for each request and trusts one
// authority.
func trusting(t testing.TB, p pair, version uint16) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(p.authority) {
		t.Fatal("the authority's certificate cannot be read")
	}
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MaxVersion: version}}}
}

func TestServe(t *testing.T) {
	f := files{filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")}
	first, second := freshPair(t, "127.0.0.1"), freshPair(t, "127.0.0.1")
	writePair(t, f, first)
	log := &journal{}
	url := "https://" + serve(t, f, newRig(t, true, clusterYAML).Handler(), log).String() + "/healthz"
	get := func(p pair, version uint16) error {
		answer, err := trusting(t, p, version).Get(url)
		if err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			err = answer.Body.Close()
		}
		return err
	}
	t.Run("who trusts the authority is answered, and nobody below TLS 1.2", func(t *testing.T) {
		if err := get(first, 0); err != nil {
			t.Error(err)
		}
		if err := get(first, tls.VersionTLS11); err == nil {
			t.Error("TLS 1.1 is spoken")
		}
		if err := get(second, 0); err == nil {
			t.Error("another authority's word is taken")
		}
	})
	t.Run("files that do not fit together, as in the middle of a change, leave the last certificate", func(t *testing.T) {
		if err := os.WriteFile(f.cert, second.certificate, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := get(first, 0); err != nil || !strings.Contains(log.String(), "cannot be read again") {
			t.Errorf("%v; log: %s", err, log)
		}
	})
	t.Run("a new certificate is used from the next connection on", func(t *testing.T) {
		writePair(t, f, second)
		if err := get(second, 0); err != nil {
			t.Error(err)
		}
	})
	t.Run("a file that is missing at the start is named", func(t *testing.T) {
		_, err := NewCertificate(f.cert, f.key+"-none", func(time.Time) {}, log.logger())
		if err == nil || !strings.Contains(err.Error(), f.key+"-none") {
			t.Errorf("%v", err)
		}
	})
}
