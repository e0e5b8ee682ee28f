// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/failpoint"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/statefile"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// kubernetesService is the Service in which the API servers publish themselves.
var kubernetesService = model.Name{Namespace: "default", Name: "kubernetes"}

const (
	// restoreGrace is how long the API is waited for before rows are made of
	// what the state file remembers.
	restoreGrace = time.Second
	// judgeInterval is how often the backends of retained sets are asked who
	// they are.
	judgeInterval = 5 * time.Second
	// saveInterval is the least time between two writes of the state file, and
	// saveRetry after one that failed.
	saveInterval = time.Second
	saveRetry    = 5 * time.Second
)

// verdicts says what an answer means for a backend.
var verdicts = map[apiserver.Answer]tables.Verdict{
	apiserver.Silent: tables.VerdictSilent, apiserver.Answers: tables.VerdictAnswers, apiserver.Foreign: tables.VerdictForeign,
}

// reach is the agent's own way to the API server: past every Service, and over
// the ends of servers, agents and nodes.
type reach struct {
	client    *apiserver.Client
	connected chan struct{} // closed once the API server has answered, or may not
	published published     // of the goroutine that follows EndpointSlices
	judge     chan struct{} // a set is retained since now

	mu         sync.Mutex
	stateError error // why the state file could not be read, or written
}

// openReach reads how the API server is reached. Nothing is dialled yet.
func (a *Agent) openReach() error {
	cfg := apiserver.Config{
		Kubeconfig: a.cfg.Kubeconfig, Servers: a.cfg.APIServers, Log: a.log,
		// The datapath is opened before anything is dialled.
		Exempt: func(fd uintptr) error { return a.datapath.Exempt(fd) },
	}
	if failpoint.Off("endpoints") {
		cfg.Servers = nil
	}
	client, err := apiserver.New(cfg)
	if err != nil {
		return err
	}
	a.reach = &reach{client: client, connected: make(chan struct{}), judge: make(chan struct{}, 1)}
	return nil
}

// recall takes up what earlier agents have left: where the API server is, and
// what its own Services had.
func (a *Agent) recall() {
	content := a.readState()
	limit := a.cfg.RetainLimit
	if failpoint.Off("retention") {
		limit, content.Memory = 0, tables.Memory{}
	}
	a.writer.Retain(tables.Retention{Services: a.retainedServices(), Limit: limit})
	a.writer.Remember(content.Memory)
	a.writer.OnRetention(a.kept)
	a.learn(apiserver.File, content.Endpoints)
	if len(content.Endpoints) > 0 && len(content.Memory.Services) == len(a.retainedServices()) {
		return
	}
	pinned := a.pinned()
	if limit > 0 {
		a.writer.Adopt(pinned)
	}
	var published []netip.AddrPort
	for key, addresses := range pinned {
		if key.Service == kubernetesService {
			published = append(published, addresses...)
		}
	}
	a.learn(apiserver.Kernel, published)
}

// retainedServices are those in front of the API server.
func (a *Agent) retainedServices() []model.Name {
	return append([]model.Name{kubernetesService}, a.cfg.Retain...)
}

func (a *Agent) learn(source apiserver.Source, at []netip.AddrPort) {
	if failpoint.Off("endpoints") {
		return
	}
	a.reach.client.Learn(source, at)
}

func (a *Agent) readState() statefile.Content {
	if a.cfg.StateFile == "" {
		return statefile.Content{}
	}
	content, err := statefile.Read(a.cfg.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return statefile.Content{}
	}
	if err != nil {
		a.log.Warn("the state file is ignored: nothing is known of the time before this start", "error", err)
		a.reach.setStateError(err)
		return statefile.Content{}
	}
	return content
}

// pinned are the backends that a predecessor's maps have for the API server's
// own Services, if there are any, in force or not. They stand in for a state file
// that is lost.
func (a *Agent) pinned() map[model.SetKey][]netip.AddrPort {
	reader, err := datapath.OpenReader(a.cfg.PinPath)
	if err != nil {
		return nil
	}
	defer reader.Close()
	kernel, err := reader.Kernel()
	if err != nil {
		return nil
	}
	found := map[model.SetKey][]netip.AddrPort{}
	for _, entry := range kernel.Entries {
		key, ok := setOf(entry)
		if !ok || !slices.Contains(a.retainedServices(), key.Service) {
			continue
		}
		// Frontends of one set repeat its backends.
		found[key] = nil
		for _, b := range entry.Backends {
			if at, err := netip.ParseAddr(b.Address); err == nil {
				found[key] = append(found[key], netip.AddrPortFrom(at, b.Port))
			}
		}
	}
	return found
}

// setOf names the set of an entry, as far as the maps do.
func setOf(e api.KernelEntry) (key model.SetKey, ok bool) {
	namespace, name, _ := strings.Cut(e.Service, "/")
	address, err := netip.ParseAddr(e.Address)
	protocol, unknown := model.ParseProtocol(e.Protocol)
	role, known := model.ParseRole(e.Role)
	key = model.SetKey{
		Service: model.Name{Namespace: namespace, Name: name}, PortName: e.PortName,
		Protocol: protocol, Family: model.FamilyOf(address), Role: role,
	}
	return key, err == nil && unknown == nil && known
}

// sourceName names the source for a person: where the API server is asked, or
// the folder.
func (a *Agent) sourceName() string {
	if a.reach == nil {
		return a.source.String()
	}
	return a.reach.client.String()
}

// followAPI are the parts that find the API server and stay with it.
func (a *Agent) followAPI() []func(context.Context) error {
	if a.reach == nil {
		return []func(context.Context) error{a.followSource}
	}
	return []func(context.Context) error{a.connect, a.followSource, a.heartbeat, a.keepState, a.judgeRetained, a.restore}
}

func (a *Agent) followSource(ctx context.Context) error {
	return a.source.Run(ctx, handler{a.writer, a})
}

// connect finds out whether there is a way to the API server. What asks it
// meanwhile waits for it, or hears soon that nobody answers.
func (a *Agent) connect(ctx context.Context) error {
	if err := a.reach.client.Connect(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	close(a.reach.connected)
	return nil
}

func (a *Agent) heartbeat(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.reach.connected:
		return a.reach.client.Run(ctx)
	}
}

// restore serves what the state file remembers of the API server's own
// Services, after a reboot and as long as nothing newer is heard of. What a
// predecessor has pinned is better than that.
func (a *Agent) restore(ctx context.Context) error {
	if a.datapath.Inherited() {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(restoreGrace):
		a.writer.Restore()
	}
	return nil
}

// kept hears of each step of a retention, in the writer's goroutine. What
// begins is judged at once.
func (a *Agent) kept(e tables.RetentionEvent) {
	a.retention(e)
	if e.What != api.EventRetained && e.What != api.EventRestored {
		return
	}
	select {
	case a.reach.judge <- struct{}{}:
	default:
	}
}

// judgeRetained asks the backends of retained sets who they are, for as long as
// there are any.
func (a *Agent) judgeRetained(ctx context.Context) error {
	for {
		a.askRetained(ctx)
		// All agents hear of an emptied set at once, and shall not ask in step.
		tick := time.NewTimer(judgeInterval + rand.N(judgeInterval/2))
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-a.reach.judge:
		}
		tick.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// askRetained asks all at once, and passes on each answer as it comes: one that
// is dead is not to hold up what is said of the others.
func (a *Agent) askRetained(ctx context.Context) {
	backends := map[netip.AddrPort]struct{}{}
	for _, set := range a.writer.Retained() {
		for _, b := range slices.Concat(set.Backends, set.Unheard) {
			backends[b.AddrPort] = struct{}{}
		}
	}
	var asked sync.WaitGroup
	for at := range backends {
		asked.Go(func() {
			// Why nobody answered does not matter: silence says nothing.
			answer, _ := a.reach.client.Probe(ctx, at)
			a.writer.Judge(map[netip.AddrPort]tables.Verdict{at: verdicts[answer]})
		})
	}
	asked.Wait()
}

// keepState tells those who watch of another way to the API server, and writes
// the state file whenever what it remembers has changed.
func (a *Agent) keepState(ctx context.Context) error {
	news := a.endpointNews()
	var again <-chan time.Time // while what changed is not in the file
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.writer.Remembered():
		case <-a.reach.client.Changed():
		case <-again:
		}
		news(a.reach.client.Status())
		again = nil
		if !a.saveState() {
			again = time.After(saveRetry)
		}
		if !wait(ctx, saveInterval) {
			return nil
		}
	}
}

// saveState says whether it went well.
func (a *Agent) saveState() bool {
	if a.cfg.StateFile == "" {
		return true
	}
	err := statefile.Write(a.cfg.StateFile, statefile.Content{
		Saved: time.Now().UTC(), Endpoints: a.reach.client.Known(), Memory: a.writer.Memory(),
	})
	if a.reach.setStateError(err) && err != nil {
		a.log.Error("the state file cannot be written, so after a reboot the API server is found by flags only; will try again", "error", err)
	}
	return err == nil
}

// wait returns false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// status is how the API server is reached; nil where the source is a folder.
func (r *reach) status(stateFile string) *api.APIServer {
	if r == nil {
		return nil
	}
	s := r.client.Status()
	r.mu.Lock()
	defer r.mu.Unlock()
	s.StateFile = stateFile
	if r.stateError != nil {
		s.StateFileError = r.stateError.Error()
	}
	return &s
}

// setStateError says whether it went otherwise the last time.
func (r *reach) setStateError(err error) (turned bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	turned = (r.stateError == nil) != (err == nil)
	r.stateError = err
	return turned
}

// published are the addresses that the API servers publish of themselves, by
// the slice they stand in. The zero value is ready to use, by one goroutine.
type published struct {
	slices map[model.Name][]netip.AddrPort
}

// note takes what became of slices, and says whether the addresses changed.
func (p *published) note(events []reflector.Event) (changed bool) {
	for i := range events {
		e := &events[i]
		if e.Kind != reflector.KindEndpointSlice {
			continue
		}
		if e.Slice != nil && e.Slice.ServiceName() == kubernetesService {
			if p.slices == nil {
				p.slices = map[model.Name][]netip.AddrPort{}
			}
			p.slices[e.Name] = addressesOf(e.Slice)
			changed = true
		} else if _, had := p.slices[e.Name]; had {
			delete(p.slices, e.Name)
			changed = true
		}
	}
	return changed
}

func (p *published) addresses() []netip.AddrPort {
	var all []netip.AddrPort
	for _, name := range slices.SortedFunc(maps.Keys(p.slices), model.Name.Compare) {
		all = append(all, p.slices[name]...)
	}
	return all
}

func addressesOf(s *model.EndpointSlice) []netip.AddrPort {
	var all []netip.AddrPort
	for _, e := range s.Endpoints {
		if !e.Ready && !e.Serving {
			continue
		}
		for _, at := range e.Addresses {
			for _, p := range s.Ports {
				if p.Protocol == model.TCP {
					all = append(all, netip.AddrPortFrom(at, p.Port))
				}
			}
		}
	}
	return all
}
