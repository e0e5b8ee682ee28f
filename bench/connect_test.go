// SPDX-License-Identifier: Apache-2.0

// Package bench measures what a user of the datapath feels: whole system calls
// of real processes, through real programs and maps.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
)

func TestMain(m *testing.M) {
	lab.Main(m, map[string]lab.Role{
		"connect": connectRole, "echo": echoRole, "ask": askRole,
		"sink": sinkRole, "bulk": bulkRole, "connections": connectionsRole, "ready": readyRole,
	})
}

var (
	backend = netip.MustParseAddrPort("10.0.1.7:8080")
	vip     = netip.MustParseAddrPort("10.96.0.80:80")
)

// medians are what a client process measured, in nanoseconds.
type medians struct{ Direct, VIP float64 }

// Clock: around the connect() system call alone, on loopback of a namespace,
// blocking, warm; direct and through the ClusterIP in turn, in one process, so
// that both meet the same machine. "bare" is a direct connect in a process
// that no program is attached to, measured beside it.
//
// Budget: TCP through a ClusterIP without affinity at most 500 ns above direct
// and above bare, at the median. Affinity and UDP stand apart.
func BenchmarkConnect(b *testing.B) {
	for _, c := range []struct {
		name     string
		protocol model.Protocol
		affinity uint32
		backends int
	}{
		{"TCP", model.TCP, 0, 1},
		{"TCP-affinity", model.TCP, 10800, 1},
		{"TCP-affinity-1000-backends", model.TCP, 10800, 1000},
		{"UDP", model.UDP, 0, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			ns := lab.NewNetNS(b, "connect")
			ns.Addr(b, "lo", backend.Addr().String()+"/32")
			cgroup := lab.NewCgroup(b)
			serve(b, cgroup, ns.Cookie(b), c.protocol, c.affinity, c.backends)
			rounds := max(b.N, 2000)
			measured := start(b, lab.Place{NetNS: ns, Cgroup: cgroup}, c.protocol, rounds)
			bare := start(b, lab.Place{NetNS: ns}, c.protocol, rounds)
			b.ReportMetric(bare.Direct, "bare-ns")
			b.ReportMetric(measured.Direct, "direct-ns")
			b.ReportMetric(measured.VIP, "vip-ns")
			b.ReportMetric(measured.VIP-measured.Direct, "above-direct-ns")
			b.ReportMetric(measured.VIP-bare.Direct, "above-bare-ns")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// Clock: the kernel's own run-time statistics of the program, one reading of
// the clock included. Half of the connects are to a ClusterIP, half to an
// address that is no Service's.
//
// Budget: 500 ns, as above. The look-up that lets exempt sockets pass is no
// more than the noise.
func BenchmarkConnectProgram(b *testing.B) {
	ns := lab.NewNetNS(b, "connect")
	ns.Addr(b, "lo", backend.Addr().String()+"/32")
	cgroup := lab.NewCgroup(b)
	serve(b, cgroup, ns.Cookie(b), model.TCP, 0, 1)
	enabled, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Fatal(err)
	}
	defer enabled.Close()
	start(b, lab.Place{NetNS: ns, Cgroup: cgroup}, model.TCP, max(b.N, 2000))
	stats := connectStats(b, cgroup)
	b.ReportMetric(float64(stats.Runtime)/float64(stats.RunCount), "ns/run")
	b.ReportMetric(0, "ns/op")
}

// connectStats are those of the one program on the cgroup's IPv4 connects.
func connectStats(b *testing.B, cgroup *lab.Cgroup) *ebpf.ProgramStats {
	folder, err := os.Open(cgroup.Path())
	if err != nil {
		b.Fatal(err)
	}
	defer folder.Close()
	on, err := link.QueryPrograms(link.QueryOptions{Target: int(folder.Fd()), Attach: ebpf.AttachCGroupInet4Connect})
	if err != nil || len(on.Programs) != 1 {
		b.Fatalf("the connect4 programs of %s are %v: %v", cgroup.Path(), on, err)
	}
	p, err := ebpf.NewProgramFromID(on.Programs[0].ID)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	stats, err := p.Stats()
	if err != nil {
		b.Fatal(err)
	}
	return stats
}

// serve puts one frontend into real maps and attaches the programs. Only the
// first backend exists: affinity keeps to it once it was chosen.
func serve(b *testing.B, cgroup *lab.Cgroup, netns uint64, p model.Protocol, affinity uint32, backends int) {
	d, err := datapath.Open(datapath.Config{
		PinPath: filepath.Join(lab.NewBPFFS(b), "fairlead"), Cgroup: cgroup.Path(), SocketMode: datapath.SocketAll,
		HostNetNS: netns, Sizes: datapath.DefaultSizes(),
	}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	set := model.Set{
		Key:             model.SetKey{Service: model.Name{Namespace: "shop", Name: "web"}, Protocol: p, Family: model.IPv4},
		AffinitySeconds: affinity,
	}
	for range backends {
		set.Backends = append(set.Backends, model.Backend{AddrPort: backend})
	}
	id, err := d.CreateSet(set.Key, d.NewOwner())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := d.Publish(id, &set); err != nil {
		b.Fatal(err)
	}
	key := model.FrontendKey{Address: vip.Addr(), Port: vip.Port(), Protocol: p}
	if errs := d.InsertFrontends([]datapath.Frontend{{Key: key, Set: id}}); errs != nil {
		b.Fatal(errs)
	}
	if err := d.Attach(); err != nil {
		b.Fatal(err)
	}
}

func start(b *testing.B, place lab.Place, p model.Protocol, rounds int) medians {
	process := place.StartRole(b, "connect", strconv.Itoa(int(p)), strconv.Itoa(rounds), strconv.FormatBool(place.Cgroup != nil))
	if err := process.Wait(); err != nil {
		b.Fatalf("%v: %s", err, process.Stderr())
	}
	var m medians
	if err := json.Unmarshal([]byte(process.Stdout()), &m); err != nil {
		b.Fatalf("%v: %s", err, process.Stdout())
	}
	return m
}

// connectRole is the client, and the server it connects to.
func connectRole(args []string) error {
	protocol, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	kind := unix.SOCK_DGRAM
	if model.Protocol(protocol) == model.TCP {
		kind = unix.SOCK_STREAM
	}
	server, err := listen(kind)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	var direct, through []float64
	for range rounds {
		ns, err := connect(kind, server, backend)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", backend, err)
		}
		direct = append(direct, ns)
		if args[2] != "true" {
			continue
		}
		if ns, err = connect(kind, server, vip); err != nil {
			return fmt.Errorf("connect to %s: %w", vip, err)
		}
		through = append(through, ns)
	}
	return json.NewEncoder(os.Stdout).Encode(medians{median(direct), median(through)})
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func listen(kind int) (int, error) {
	s, err := unix.Socket(unix.AF_INET, kind, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(s, sockaddr(backend)); err != nil {
		return -1, err
	}
	if kind == unix.SOCK_STREAM {
		return s, unix.Listen(s, 128)
	}
	return s, nil
}

func sockaddr(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// connect measures one connect(). Both ends are closed at once, with a reset,
// so that no port is left waiting.
func connect(kind, server int, to netip.AddrPort) (float64, error) {
	s, err := unix.Socket(unix.AF_INET, kind, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	address := sockaddr(to)
	begin := time.Now()
	err = unix.Connect(s, address)
	took := time.Since(begin)
	if err != nil || kind == unix.SOCK_DGRAM {
		return float64(took.Nanoseconds()), err
	}
	accepted, _, err := unix.Accept(server)
	if err != nil {
		return 0, err
	}
	linger := &unix.Linger{Onoff: 1}
	if err := unix.SetsockoptLinger(accepted, unix.SOL_SOCKET, unix.SO_LINGER, linger); err != nil {
		return 0, err
	}
	return float64(took.Nanoseconds()), unix.Close(accepted)
}
