// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// Programs that people use, with habits of their own.
func TestPrograms(t *testing.T) {
	for _, s := range shapes {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			network := start(t, s, 2)
			for _, n := range network.nodes {
				pages, plain, speed := n.silent(t, "pages"), n.backend(t, "plain"), n.silent(t, "speed")
				servePages(t, pages)
				services := map[*rig.Backend]fullService{}
				for _, b := range []*rig.Backend{pages, plain, speed} {
					services[b] = network.full(b.Name+"-"+n.Name, "")
					network.serve(t, services[b].Service, rig.Ready(b))
				}
				for _, w := range []rig.Way{{Name: "IPv4"}, {Name: "IPv6", V6: true}} {
					at := func(b *rig.Backend) netip.AddrPort { return w.To(network.nodes[0].addrs, services[b].NodePort) }
					t.Run("curl, endpoint on "+n.Name+", "+w.Name, func(t *testing.T) { curl(t, network, at(pages)) })
					t.Run("nc, endpoint on "+n.Name+", "+w.Name, func(t *testing.T) { netcat(t, network, at(plain), "plain") })
					t.Run("iperf3, endpoint on "+n.Name+", "+w.Name, func(t *testing.T) { iperf(t, network, speed, at(speed)) })
				}
			}
		})
	}
}

func (net *network) at() lab.Place { return lab.Place{NetNS: net.client} }

const page = "a page\n"

func servePages(t *testing.T, b *rig.Backend) {
	t.Helper()
	for _, addr := range b.Addrs.List() {
		var listener net.Listener
		b.NS.Do(func() {
			var err error
			if listener, err = net.Listen("tcp", netip.AddrPortFrom(addr, rig.BackendPort).String()); err != nil {
				t.Fatal(err)
			}
		})
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, page)
		})}
		t.Cleanup(func() { server.Close() })
		go server.Serve(listener)
	}
}

func curl(t *testing.T, network *network, to netip.AddrPort) {
	t.Helper()
	url := "http://" + to.String() + "/"
	out := network.at().Run(t, "curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "10", url, url)
	if out != page+page {
		t.Errorf("curl %s printed %q", url, out)
	}
}

func netcat(t *testing.T, network *network, to netip.AddrPort, server string) {
	t.Helper()
	for _, kind := range [][]string{{"-N"}, {"-u"}} {
		process := network.at().Start(t, "nc", append(kind, "-w", "1", to.Addr().String(), fmt.Sprint(to.Port()))...)
		process.WriteLine("who?")
		if line := process.ReadLine(); !strings.Contains(line, `"Server":"`+server+`"`) {
			t.Errorf("nc %s %s printed %q", kind[0], to, line)
		}
		if err := process.Wait(); err != nil {
			t.Errorf("nc %s %s ended with %v", kind[0], to, err)
		}
	}
}

// report is what is looked at of what iperf3 prints.
type report struct {
	End struct {
		Received struct{ Bytes int64 } `json:"sum_received"` // of a connection
		Sum      struct {              // of datagrams
			Packets int
			Lost    int `json:"lost_packets"`
		}
	}
}

// iperf measures nothing here: it must get to its end. Its server stops to count
// when the client says on another connection that it has sent everything, which
// may be sooner than that has come; TestBulk counts the bytes. Of datagrams a
// busy machine drops some.
func iperf(t *testing.T, network *network, b *rig.Backend, to netip.AddrPort) {
	t.Helper()
	const (
		connection = 16 << 20
		datagrams  = 1 << 20
	)
	large := 8000 // several fragments
	if network.shape == tunnelled {
		large = 1200 // iperf3 gives up when it is told that something did not fit
	}
	for _, kind := range [][]string{
		{"-n", fmt.Sprint(connection)},
		{"-n", fmt.Sprint(connection), "-R"},
		{"-u", "-l", fmt.Sprint(large), "-b", "40M", "-n", fmt.Sprint(datagrams)},
		{"-u", "-l", fmt.Sprint(large), "-b", "40M", "-n", fmt.Sprint(datagrams), "-R"},
	} {
		server := lab.Place{NetNS: b.NS}.Start(t, "iperf3", "-s", "-1", "--forceflush", "-p", fmt.Sprint(rig.BackendPort))
		rig.Eventually(t, func() error {
			if said := server.Stdout(); !strings.Contains(said, "listening") {
				return fmt.Errorf("the server of iperf3 says %q", said)
			}
			return nil
		})
		args := append([]string{"-c", to.Addr().String(), "-p", fmt.Sprint(to.Port()), "-J"}, kind...)
		out := network.at().Run(t, "iperf3", args...)
		var r report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("iperf3 %s: %v\n%s", kind, err, out)
		}
		if kind[0] != "-u" && r.End.Received.Bytes == 0 {
			t.Errorf("iperf3 %s: nothing came", kind)
		}
		if kind[0] == "-u" && (r.End.Sum.Packets < datagrams/large || r.End.Sum.Lost > r.End.Sum.Packets/2) {
			t.Errorf("iperf3 %s: of %d datagrams %d were lost\n%s", kind, r.End.Sum.Packets, r.End.Sum.Lost, out)
		}
		if err := server.Wait(); err != nil {
			t.Errorf("the server of iperf3 %s: %v\n%s", kind, err, server.Stdout())
		}
	}
}
