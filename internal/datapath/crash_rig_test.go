// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
)

// passage is a way for a writer to get from one world to another.
type passage struct {
	name string
	// sizes of world b, which are those of a if this is zero.
	sizes Sizes
	// live says that the writer starts in the first world and then changes it;
	// else it starts in the second one.
	live bool
	// bare says that nothing of a predecessor is left.
	bare bool
	// off says that the writer takes its programs off the cgroup.
	off bool
}

var passages = []passage{
	{name: "changes while it runs", live: true},
	{name: "changes before a restart"},
	{name: "a restart with maps of another size", sizes: Sizes{Frontends: 512, Sets: 128, Backends: 2048, Affinity: 128, Flows: 2048, UDP: 128, Ranges: 128}},
	{name: "a first start", bare: true},
	{name: "a start that switches the socket path off", off: true},
}

// trip is what a writer of its own process is told to do.
type trip struct {
	Config  Config
	Passage string
	From    string
	Fail    string // the failpoint at which it dies
}

// crashRole makes one trip.
func crashRole(args []string) error {
	var t trip
	if err := json.Unmarshal([]byte(args[0]), &t); err != nil {
		return err
	}
	if err := os.Setenv("FAIRLEAD_FAILPOINT", t.Fail); err != nil {
		return err
	}
	p := passages[slices.IndexFunc(passages, func(p passage) bool { return p.name == t.Passage })]
	from, to := worlds()
	if t.From != from.name {
		from, to = to, from
	}
	d, err := Open(t.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	w := &player{Datapath: d, sets: map[model.SetKey]SetID{}}
	if err := w.travel(p, from, to); err != nil {
		return errors.Join(err, w.Close())
	}
	return w.Close()
}

// travel ends with a comparison, as the agent makes them now and then.
func (p *player) travel(by passage, from, to world) error {
	first := to
	if by.live {
		first = from
	}
	if err := p.start(first); err != nil {
		return err
	}
	if by.live {
		if err := p.change(to); err != nil {
			return err
		}
	}
	_, err := p.Compare()
	return err
}

// callerRole asks every address that it is given, again and again. For each
// line that it reads it says what it has heard where since it last did.
func callerRole(targets []string) error {
	asked := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			asked <- struct{}{}
		}
		os.Exit(0)
	}()
	heard := map[string]map[string]int{}
	for {
		for _, target := range targets {
			if heard[target] == nil {
				heard[target] = map[string]int{}
			}
			heard[target][ask(target)]++
		}
		select {
		case <-asked:
			if err := json.NewEncoder(os.Stdout).Encode(heard); err != nil {
				return err
			}
			heard = map[string]map[string]int{}
		default:
		}
	}
}

// ask is the answer of whoever is behind a network/address, or why there is none.
func ask(target string) string {
	network, address, _ := strings.Cut(target, "/")
	answer, err := askAt(network, address)
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	if err != nil {
		return err.Error()
	}
	return answer
}

func askAt(network, address string) (string, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if network == "udp" {
		if _, err := conn.Write([]byte("question")); err != nil {
			return "", err
		}
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	return string(answer[:n]), err
}

// journey is a node with a client that never stops asking, while writers come
// and go that make it one world or the other.
type journey struct {
	*stage
	cgroup *lab.Cgroup
	by     passage
	a, b   world
	caller *lab.Process
	// entries and usage of each world, as an undisturbed writer makes them.
	lines map[string][]string
	used  map[string][3]uint64
}

func newJourney(t *testing.T, by passage) *journey {
	t.Helper()
	j := &journey{by: by, cgroup: lab.NewCgroup(t), lines: map[string][]string{}, used: map[string][3]uint64{}}
	j.stage = &stage{rig: newRig(t, smallSizes()), ns: lab.NewNetNS(t, "node")}
	j.close()
	j.a, j.b = worlds()
	j.b.sizes = cmp.Or(by.sizes, j.b.sizes)
	for _, device := range []string{j.a.device, j.b.device} {
		lab.Veth(t, lab.End{NetNS: j.ns, Link: device}, lab.End{NetNS: lab.NewNetNS(t, "peer of "+device), Link: "eth0"})
	}
	j.ns.Addr(t, "lo", nodeAddress+"/32")
	for _, b := range []string{b1, b2, b3, b4, v1, v2} {
		j.announce("tcp", b)
	}
	for _, b := range []string{u1, u2} {
		j.announce("udp", b)
	}
	for _, w := range []world{j.b, j.a, j.b, j.a} {
		j.arrive(w)
		j.lines[w.name] = j.entries()
		j.used[w.name] = j.usage()
		j.close()
	}
	all := j.a.answers()
	maps.Copy(all, j.b.answers())
	targets := slices.Sorted(maps.Keys(all))
	j.caller = lab.Place{NetNS: j.ns, Cgroup: j.cgroup}.StartRole(t, "caller", targets...)
	return j
}

// config is that of a writer which starts in a world.
func (j *journey) config(w world) Config {
	cfg := j.cfg
	cfg.Cgroup, cfg.SocketMode, cfg.HostNetNS = j.cgroup.Path(), SocketAll, j.ns.Cookie(j.t)
	cfg.Wire = Wire{On: true, SNATPorts: Ports{61000, 65535}}
	cfg.Sizes, cfg.ServiceCIDRs, cfg.MaglevTableSize = w.sizes, w.cidrs, 251
	return cfg
}

// arrive makes a world by a new writer of this process, which stays.
func (j *journey) arrive(w world) {
	j.t.Helper()
	j.cfg = j.config(w)
	j.open()
	p := &player{Datapath: j.Datapath, sets: map[model.SetKey]SetID{}}
	var err error
	j.ns.Do(func() { err = p.start(w) })
	if err != nil {
		j.t.Fatal(err)
	}
}

// usage is how many frontends, sets and slots are in use, once what is retired
// is free again.
func (j *journey) usage() (used [3]uint64) {
	j.t.Helper()
	signal(j.wake)
	signal(j.short)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		j.mu.Lock()
		retired := len(j.retired.extents) + len(j.retired.sets)
		j.mu.Unlock()
		if retired == 0 {
			break
		}
		if time.Now().After(deadline) {
			j.t.Fatalf("%d are retired after 10 s", retired)
		}
	}
	// The batch that was taken last is freed after its barrier.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		uses, err := j.Usage()
		if err != nil {
			j.t.Fatal(err)
		}
		used = [3]uint64{uses[0].Used, uses[1].Used, uses[2].Used}
		if used == j.inUse() || time.Now().After(deadline) {
			return used
		}
	}
}

// inUse counts what frontends and sets name.
func (j *journey) inUse() (used [3]uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	used[0] = uint64(len(j.installed))
	for _, sh := range j.shadows {
		if sh.owner != 0 {
			used[1]++
			used[2] += uint64(sh.length)
		}
	}
	return used
}

// heard is what the client has heard since this was last asked, at whatever was
// in force meanwhile.
func (j *journey) heard() map[string]map[string]int {
	j.t.Helper()
	j.caller.WriteLine("")
	var heard map[string]map[string]int
	if err := json.Unmarshal([]byte(j.caller.ReadLine()), &heard); err != nil {
		j.t.Fatal(err)
	}
	return heard
}

// expectHeard expects that whatever the client has heard fits one of the worlds.
func (j *journey) expectHeard(in ...world) {
	j.t.Helper()
	for target, answers := range j.heard() {
		for answer, times := range answers {
			if !mayHear(target, answer, in...) {
				j.t.Errorf("at %s the client heard %q %d times", target, answer, times)
			}
		}
	}
}

// expectWhole expects that each entry of the kernel is one of a world, whole.
func (j *journey) expectWhole(in ...world) {
	j.t.Helper()
	if !exists(j.t, filepath.Join(j.cfg.PinPath, currentLink)) {
		return
	}
	for _, line := range j.entries() {
		known := strings.HasPrefix(line, "unused ") && !strings.Contains(line, " PROBLEM ") ||
			slices.ContainsFunc(in, func(w world) bool { return slices.Contains(j.lines[w.name], line) })
		if !known {
			j.t.Errorf("the kernel has %q, which is of neither world", line)
		}
	}
}

// expectWorld expects that there is nothing but this world.
func (j *journey) expectWorld(w world) {
	j.t.Helper()
	repaired, err := 0, error(nil)
	j.ns.Do(func() { repaired, err = j.Compare() })
	if repaired != 0 || err != nil {
		j.t.Errorf("%d repaired, %v", repaired, err)
	}
	j.expectEntries(j.lines[w.name]...)
	if used := j.usage(); used != j.used[w.name] {
		j.t.Errorf("frontends, sets and slots in use are %d, want %d", used, j.used[w.name])
	}
	j.heard() // began before the world was whole
	j.expectHeard(w)
	want := []string{currentLink, fmt.Sprintf("g%d", j.current.number), linksFolder}
	if got := names(j.t, j.cfg.PinPath); !slices.Equal(got, want) {
		j.t.Errorf("pinned are %q, want %q", got, want)
	}
	links := []string{}
	for _, h := range hooks {
		links = append(links, h.name)
	}
	if j.hasRangedSet() {
		links = append(links, sourceHook.name)
	}
	got := slices.DeleteFunc(names(j.t, filepath.Join(j.cfg.PinPath, linksFolder)), func(name string) bool { return strings.HasPrefix(name, tcxPrefix) })
	if slices.Sort(links); !slices.Equal(got, links) {
		j.t.Errorf("pinned links are %q, want %q", got, links)
	}
}

// names are those of what is in a folder, sorted.
func names(t testing.TB, folder string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// send lets a writer of its own process make the trip from one world, and
// returns it once it has ended.
func (j *journey) send(from, to world, fail string) (*lab.Process, error) {
	j.t.Helper()
	if j.by.bare {
		j.cleanUp()
	}
	first := to
	if j.by.live {
		first = from
	}
	cfg := j.config(first)
	if j.by.off {
		cfg.SocketMode = SocketOff
	}
	text, err := json.Marshal(trip{Config: cfg, Passage: j.by.name, From: from.name, Fail: fail})
	if err != nil {
		j.t.Fatal(err)
	}
	process := lab.Place{NetNS: j.ns}.StartRole(j.t, "crash", string(text))
	return process, process.Wait()
}

func (j *journey) cleanUp() {
	j.t.Helper()
	var err error
	j.ns.Do(func() { err = Cleanup(j.cfg.PinPath) })
	if err != nil {
		j.t.Fatal(err)
	}
}

// served says that the client is served all the while.
func (p passage) served() bool { return !p.bare && !p.off }

// finish checks what a writer has left on its way, and lets another one bring
// it to its end.
func (j *journey) finish(from, to world) {
	j.t.Helper()
	if j.by.served() {
		j.expectHeard(from, to)
	}
	j.expectWhole(from, to)
	j.arrive(to)
	if j.by.served() {
		j.expectHeard(from, to)
	}
	j.expectWorld(to)
	j.close()
}

// Each trip goes on where the one before ended.
func TestAClientIsServedWhileWritersGoFromWorldToWorld(t *testing.T) {
	for _, by := range passages {
		t.Run(by.name, func(t *testing.T) {
			j := newJourney(t, by)
			for range 2 {
				for _, way := range [][2]world{{j.a, j.b}, {j.b, j.a}} {
					from, to := way[0], way[1]
					if process, err := j.send(from, to, ""); err != nil {
						t.Fatalf("from %s to %s: %v: %s", from.name, to.name, err, process.Stderr())
					}
					j.finish(from, to)
				}
			}
		})
	}
}
