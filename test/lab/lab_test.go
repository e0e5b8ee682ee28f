// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Main(m, map[string]Role{
		"whereabouts": whereabouts,
		"shout":       shout,
		"wait":        func([]string) error { select {} },
		"parent":      parent,
		"fail":        func([]string) error { return errors.New("as told") },
	})
}

// whereabouts prints the namespace, the cgroup and the arguments.
func whereabouts(args []string) error {
	netns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(cgroups)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			fmt.Printf("%s\n%s%s\n", netns, path, strings.Join(args, ","))
		}
	}
	return nil
}

// shout prints each line of standard input in capitals.
func shout([]string) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(strings.ToUpper(lines.Text()))
	}
	return lines.Err()
}

// parent starts a process as a test does, prints its number, and waits.
func parent([]string) error {
	fmt.Println(Place{}.StartRole(roleTB{}, "wait").PID())
	select {}
}

// roleTB is what a process that is no test has of one.
type roleTB struct{ testing.TB }

func (roleTB) Helper()        {}
func (roleTB) Cleanup(func()) {}

func (roleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func interfaceNames(t *testing.T) []string {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, link := range links {
		names = append(names, link.Name)
	}
	return names
}

func netnsOfThread(t *testing.T) string {
	t.Helper()
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestNetNS(t *testing.T) {
	t.Run("a new namespace has a loopback device and no way out", func(t *testing.T) {
		ns := NewNetNS(t, "alone")
		ns.Do(func() {
			if got := interfaceNames(t); !slices.Equal(got, []string{"lo"}) {
				t.Errorf("interfaces = %q, want only lo", got)
			}
			if _, err := net.Dial("udp", "192.0.2.1:9"); !errors.Is(err, unix.ENETUNREACH) {
				t.Errorf("dial out: %v, want network is unreachable", err)
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatalf("loopback is not up: %v", err)
			}
			defer listener.Close()
			conn, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatalf("loopback: %v", err)
			}
			conn.Close()
		})
	})

	t.Run("Do leaves every thread of the process where it was", func(t *testing.T) {
		home := netnsOfThread(t)
		ns := NewNetNS(t, "away")
		for range 50 {
			ns.Do(func() {
				if netnsOfThread(t) == home {
					t.Error("the function ran at home")
				}
			})
		}
		if tasks := tasksAwayFrom(t, home); len(tasks) > 0 {
			t.Errorf("threads %v are not at home", tasks)
		}
	})

	t.Run("ending a test in Do ends the test", func(t *testing.T) {
		ns := NewNetNS(t, "last")
		probe := &goexitProbe{TB: t}
		done := make(chan bool)
		go func() {
			defer func() { done <- probe.reached }()
			ns.Do(func() { probe.FailNow() })
			probe.reached = true
		}()
		if <-done {
			t.Error("the caller of Do went on after FailNow")
		}
		if !probe.failed {
			t.Error("the function did not run")
		}
	})

	t.Run("each namespace has a cookie of its own", func(t *testing.T) {
		a, b := NewNetNS(t, "a"), NewNetNS(t, "b")
		if a.Cookie(t) == b.Cookie(t) {
			t.Errorf("both have the cookie %d", a.Cookie(t))
		}
		if a.Cookie(t) != a.Cookie(t) {
			t.Error("the cookie changes")
		}
	})

	t.Run("a namespace is gone with the test", func(t *testing.T) {
		var path string
		t.Run("test", func(t *testing.T) {
			path = NewNetNS(t, "short").Path()
			if _, err := os.Stat(path); err != nil {
				t.Fatal(err)
			}
		})
		target, err := os.Readlink(path)
		if err == nil && strings.HasPrefix(target, "net:") {
			t.Errorf("%s still is %s", path, target)
		}
	})
}

// goexitProbe ends the goroutine as a test does, without failing the test.
type goexitProbe struct {
	testing.TB
	failed, reached bool
}

func (p *goexitProbe) FailNow() {
	p.failed = true
	runtime.Goexit()
}

// tasksAwayFrom waits for threads to be destroyed, which the kernel does in
// its own time, and returns those that stay away.
func tasksAwayFrom(t *testing.T, home string) (away []string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		away = nil
		links, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			if ns, err := os.Readlink(link); err == nil && ns != home {
				away = append(away, link)
			}
		}
		if len(away) == 0 {
			return nil
		}
	}
	return away
}

// expectCarrier waits until a device has the other end's signal, or not.
func expectCarrier(t *testing.T, ns *NetNS, link string, want bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		device, err := ns.link.LinkByName(link)
		if err != nil {
			t.Fatal(err)
		}
		if carrier := device.Attrs().OperState == netlink.OperUp; carrier == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s in %s is %s after %s", link, ns, device.Attrs().OperState, patience)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Run("a cable carries both families at once", func(t *testing.T) {
		a, b := NewNetNS(t, "a"), NewNetNS(t, "b")
		Veth(t,
			End{a, "eth0", []string{"192.0.2.1/24", "2001:db8::1/64"}},
			End{b, "eth0", []string{"192.0.2.2/24", "2001:db8::2/64"}})
		expectReach(t, a, b, "192.0.2.2")
		expectReach(t, b, a, "192.0.2.1")
		expectReach(t, a, b, "2001:db8::2")
	})

	t.Run("a device that is set down takes the carrier from the other end, until it is set up", func(t *testing.T) {
		a, b := NewNetNS(t, "a"), NewNetNS(t, "b")
		Veth(t, End{a, "eth0", []string{"192.0.2.1/24"}}, End{b, "eth0", []string{"192.0.2.2/24"}})
		for _, up := range []bool{false, true} {
			b.SetLink(t, "eth0", up)
			expectCarrier(t, a, "eth0", up)
		}
		expectReach(t, a, b, "192.0.2.2")
	})

	t.Run("a bridge joins machines to one network", func(t *testing.T) {
		lan, a, b := NewNetNS(t, "lan"), NewNetNS(t, "a"), NewNetNS(t, "b")
		Veth(t, End{a, "eth0", []string{"192.0.2.1/24", "2001:db8::1/64"}}, End{lan, "a", nil})
		Veth(t, End{b, "eth0", []string{"192.0.2.2/24", "2001:db8::2/64"}}, End{lan, "b", nil})
		lan.Bridge(t, End{lan, "lan0", []string{"192.0.2.254/24", "2001:db8::fe/64"}}, "a", "b")
		expectReach(t, a, b, "192.0.2.2")
		expectReach(t, a, b, "2001:db8::2")
		expectReach(t, b, lan, "2001:db8::fe")
		expectReach(t, a, lan, "192.0.2.254")
	})

	t.Run("pods reach each other, their node, and pods of another node", func(t *testing.T) {
		n1, n2 := NewNetNS(t, "n1"), NewNetNS(t, "n2")
		Veth(t, End{n1, "eth0", []string{"192.0.2.1/24", "2001:db8::1/64"}}, End{n2, "eth0", []string{"192.0.2.2/24", "2001:db8::2/64"}})
		a := n1.Pod(t, "a", netip.MustParseAddr("10.0.1.7"), netip.MustParseAddr("fd00:1::7"))
		b := n1.Pod(t, "b", netip.MustParseAddr("10.0.1.8"))
		c := n2.Pod(t, "c", netip.MustParseAddr("10.0.2.9"), netip.MustParseAddr("fd00:2::9"))
		n1.Route(t, netip.MustParsePrefix("10.0.2.0/24"), netip.MustParseAddr("192.0.2.2"), "eth0")
		n2.Route(t, netip.MustParsePrefix("10.0.1.0/24"), netip.MustParseAddr("192.0.2.1"), "eth0")
		n1.Route(t, netip.MustParsePrefix("fd00:2::/64"), netip.MustParseAddr("2001:db8::2"), "eth0")
		n2.Route(t, netip.MustParsePrefix("fd00:1::/64"), netip.MustParseAddr("2001:db8::1"), "eth0")
		expectReach(t, a, b, "10.0.1.8")
		expectReach(t, a, n1, "192.0.2.1")
		expectReach(t, n1, a, "10.0.1.7")
		expectReach(t, a, c, "10.0.2.9")
		expectReach(t, c, a, "10.0.1.7")
		expectReach(t, a, c, "fd00:2::9")
		a.Do(func() {
			if got := interfaceNames(t); !slices.Equal(got, []string{"lo", "eth0"}) {
				t.Errorf("interfaces of a pod = %q, want lo and eth0", got)
			}
		})
	})

	t.Run("an address added later can be reached", func(t *testing.T) {
		ns := NewNetNS(t, "vip")
		ns.Addr(t, "lo", "198.51.100.7/32")
		expectReach(t, ns, ns, "198.51.100.7")
	})
}

// expectReach opens a connection from one namespace to an address in another.
func expectReach(t *testing.T, from, to *NetNS, addr string) {
	t.Helper()
	var listener net.Listener
	var err error
	to.Do(func() { listener, err = net.Listen("tcp", net.JoinHostPort(addr, "0")) })
	if err != nil {
		t.Fatalf("listen in %s: %v", to, err)
	}
	defer listener.Close()
	var conn net.Conn
	// A dialer with one address connects on the calling thread.
	from.Do(func() { conn, err = net.DialTimeout("tcp", listener.Addr().String(), patience) })
	if err != nil {
		t.Fatalf("from %s to %s: %v", from, to, err)
	}
	conn.Close()
}

func TestCgroup(t *testing.T) {
	t.Run("a new cgroup is empty, below the root, and gone with the test", func(t *testing.T) {
		var path string
		t.Run("test", func(t *testing.T) {
			path = NewCgroup(t).Path()
			procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if err != nil || len(procs) > 0 {
				t.Errorf("processes = %q, %v; want none", procs, err)
			}
			// The root of the hierarchy has no type.
			if _, err := os.Stat(filepath.Join(path, "cgroup.type")); err != nil {
				t.Errorf("%s is not below the root: %v", path, err)
			}
		})
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it gone", path, err)
		}
	})

	t.Run("what still runs in a cgroup ends with it", func(t *testing.T) {
		var process *Process
		t.Run("test", func(t *testing.T) {
			cgroup := NewCgroup(t).Child(t, "pod")
			process = Place{Cgroup: cgroup}.StartRole(t, "wait")
		})
		<-process.Done()
	})
}

func TestBPFFS(t *testing.T) {
	var dir string
	t.Run("a map that is pinned can be found again", func(t *testing.T) {
		dir = NewBPFFS(t)
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		pin := filepath.Join(dir, "map")
		if err := m.Pin(pin); err != nil {
			t.Fatal(err)
		}
		again, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			t.Fatal(err)
		}
		again.Close()
	})
	t.Run("the file system is gone with the test", func(t *testing.T) {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(mounts), dir) {
			t.Errorf("%s is still mounted", dir)
		}
	})
}

func TestProcess(t *testing.T) {
	t.Run("a machine's name is its process's own", func(t *testing.T) {
		before, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		if got := (Place{Hostname: "cp1"}).Run(t, "uname", "-n"); got != "cp1\n" {
			t.Errorf("the machine is called %q, want cp1", got)
		}
		if after, err := os.Hostname(); err != nil || after != before {
			t.Errorf("this machine is called %q now, was %q: %v", after, before, err)
		}
	})
	t.Run("a role lives where it was placed and gets its arguments", func(t *testing.T) {
		ns, cgroup := NewNetNS(t, "pod"), NewCgroup(t)
		process := Place{NetNS: ns, Cgroup: cgroup}.StartRole(t, "whereabouts", "one", "two words")
		var netns string
		ns.Do(func() { netns = netnsOfThread(t) })
		if got := process.ReadLine(); got != netns {
			t.Errorf("network namespace %s, want %s", got, netns)
		}
		if got := process.ReadLine(); !strings.HasSuffix(cgroup.Path(), got) || got == "/" {
			t.Errorf("cgroup %s, want the end of %s", got, cgroup.Path())
		}
		if got, want := process.ReadLine(), "one,two words"; got != want {
			t.Errorf("arguments %s, want %s", got, want)
		}
		if err := process.Wait(); err != nil {
			t.Error(err)
		}
	})

	t.Run("the zero place is where the test is", func(t *testing.T) {
		if got := (Place{}).StartRole(t, "whereabouts").ReadLine(); got != netnsOfThread(t) {
			t.Errorf("network namespace %s, want %s", got, netnsOfThread(t))
		}
	})

	t.Run("a program's output is returned", func(t *testing.T) {
		if got := (Place{}).Run(t, "echo", "hello"); got != "hello\n" {
			t.Errorf("output %q", got)
		}
	})

	t.Run("lines go in and come out", func(t *testing.T) {
		process := Place{}.StartRole(t, "shout")
		for _, word := range []string{"one", "two"} {
			process.WriteLine(word)
			if got := process.ReadLine(); got != strings.ToUpper(word) {
				t.Errorf("line %q", got)
			}
		}
		if err := process.Wait(); err != nil {
			t.Errorf("end of input: %v", err)
		}
	})

	t.Run("of what was read all but the last part can be let go, and what follows is read", func(t *testing.T) {
		p := Place{}.Start(t, "/bin/cat")
		line := strings.Repeat("x", 1000)
		for i := range 3 * logged / len(line) {
			p.WriteLine(fmt.Sprint(i, line))
			if got := p.ReadLine(); got != fmt.Sprint(i, line) {
				t.Fatalf("read %q", got)
			}
		}
		p.Trim()
		if n := len(p.Stdout()); n != logged {
			t.Errorf("%d bytes are kept, want %d", n, logged)
		}
		p.WriteLine("next")
		if got := p.ReadLine(); got != "next" {
			t.Errorf("read %q", got)
		}
		p.Forget()
		if got := p.Stdout(); got != "" {
			t.Errorf("of a process that was forgotten: %q", got)
		}
	})

	t.Run("a role that fails says why and exits with 1", func(t *testing.T) {
		expectExit(t, Place{}.StartRole(t, "fail"), 1, "fail: as told\n")
	})

	t.Run("a role that nobody plays exits with 2", func(t *testing.T) {
		expectExit(t, Place{}.StartRole(t, "hamlet"), 2, "role \"hamlet\" is none of those that this package gives to lab.Main\n")
	})

	t.Run("a signal reaches the process", func(t *testing.T) {
		process := Place{}.StartRole(t, "wait")
		process.Signal(syscall.SIGTERM)
		var exit *exec.ExitError
		if err := process.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("ended by %v, want SIGTERM", err)
		}
	})

	t.Run("a process dies with the one that started it", func(t *testing.T) {
		parent := Place{}.StartRole(t, "parent")
		stat := filepath.Join("/proc", parent.ReadLine(), "stat")
		parent.Kill()
		deadline := time.Now().Add(patience)
		for alive(stat) && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if alive(stat) {
			t.Errorf("%s: the process outlived its parent", stat)
		}
	})

	t.Run("a process does not end with the thread of another", func(t *testing.T) {
		ns := NewNetNS(t, "busy")
		process := Place{NetNS: ns}.StartRole(t, "shout")
		for range 100 {
			ns.Do(func() {})
		}
		process.WriteLine("alive")
		if got := process.ReadLine(); got != "ALIVE" {
			t.Errorf("line %q", got)
		}
	})
}

// alive says whether a process runs: one that has ended is gone or a zombie.
func alive(stat string) bool {
	line, err := os.ReadFile(stat)
	return err == nil && !strings.Contains(string(line), ") Z ")
}

func expectExit(t *testing.T, process *Process, status int, stderr string) {
	t.Helper()
	var exit *exec.ExitError
	if err := process.Wait(); !errors.As(err, &exit) || exit.ExitCode() != status {
		t.Errorf("ended with %v, want status %d", err, status)
	}
	if got := process.Stderr(); got != stderr {
		t.Errorf("standard error %q, want %q", got, stderr)
	}
}
