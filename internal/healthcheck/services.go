// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// Services answers load balancers about each Service that asks for it, on the
// Service's own port (R29). A Service that changes leaves the listeners of all
// others alone, and so does its own that still fits.
type Services struct {
	healthy func(model.Name) bool
	log     *slog.Logger
	wake    chan struct{}
	serving sync.WaitGroup

	mu        sync.Mutex // guards what follows
	addresses []netip.Addr
	checks    map[model.Name]model.HealthCheck
	servers   map[place]*listening
	failed    map[place]error
}

// place is an address and port on which a Service is asked about.
type place struct {
	service model.Name
	at      netip.AddrPort
}

func (p place) compare(o place) int {
	return cmp.Or(p.service.Compare(o.service), model.CompareAddrPort(p.at, o.at))
}

// listening is a server and what it listens with.
type listening struct {
	*http.Server
	listener net.Listener
}

// Close frees the port at once: a server that has not begun to serve yet does
// not know its listener.
func (l *listening) Close() {
	l.listener.Close()
	l.Server.Close()
}

// NewServices returns a set of servers that listens nowhere yet. healthy says
// whether the node serves a Service as its rows ask for.
func NewServices(healthy func(model.Name) bool, log *slog.Logger) *Services {
	return &Services{
		healthy: healthy, log: log, wake: make(chan struct{}, 1),
		checks: map[model.Name]model.HealthCheck{}, servers: map[place]*listening{}, failed: map[place]error{},
	}
}

// Set says what a Service asks for and has here now.
func (s *Services) Set(service model.Name, check model.HealthCheck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, had := s.checks[service]
	s.checks[service] = check
	if !had || before.Port != check.Port {
		s.signal()
	}
}

// Remove says that a Service asks for nothing any more.
func (s *Services) Remove(service model.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, had := s.checks[service]; had {
		delete(s.checks, service)
		s.signal()
	}
}

// ListenOn says on which of the node's addresses to listen; 0.0.0.0 is all of
// both families.
func (s *Services) ListenOn(addresses []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses = slices.Clone(addresses)
	s.signal()
}

func (s *Services) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run listens until ctx ends, then returns nil. What cannot be listened on is
// tried again.
func (s *Services) Run(ctx context.Context) error {
	defer s.close()
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		s.adjust(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-retry.C:
		}
	}
}

// adjust makes the listeners those that are wanted. What goes is closed first,
// for a port may change hands. Places are opened in order: where two Services
// want one port, it is the same one that gets it each time.
func (s *Services) adjust(ctx context.Context) {
	wanted := s.wanted()
	s.mu.Lock()
	for p, server := range s.servers {
		if !wanted[p] {
			server.Close()
			delete(s.servers, p)
		}
	}
	maps.DeleteFunc(s.failed, func(p place, _ error) bool { return !wanted[p] })
	maps.DeleteFunc(wanted, func(p place, _ bool) bool { return s.servers[p] != nil })
	s.mu.Unlock()
	for _, p := range slices.SortedFunc(maps.Keys(wanted), place.compare) {
		s.open(ctx, p)
	}
}

func (s *Services) wanted() map[place]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := make(map[place]bool, len(s.checks)*len(s.addresses))
	for service, check := range s.checks {
		for _, a := range s.addresses {
			places[place{service, netip.AddrPortFrom(a, check.Port)}] = true
		}
	}
	return places
}

func (s *Services) open(ctx context.Context, p place) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", p.at.String())
	if ctx.Err() != nil && err != nil {
		return
	}
	if err != nil {
		s.fail(p, err)
		return
	}
	s.serve(p, listener)
}

func (s *Services) serve(p place, listener net.Listener) {
	server := &listening{newHTTPServer(s.about(p.service), s.log), listener}
	s.mu.Lock()
	if s.failed[p] != nil {
		s.log.Info("the port of a health check is listened on at last", "service", p.service, "address", p.at)
		delete(s.failed, p)
	}
	s.servers[p] = server
	s.mu.Unlock()
	s.serving.Go(func() {
		if err := server.Serve(listener); !ended(err) {
			s.lost(p, server, err)
		}
	})
}

// lost notes that a listener ended by itself; it is opened anew in time.
func (s *Services) lost(p place, server *listening, err error) {
	s.mu.Lock()
	mine := s.servers[p] == server
	if mine {
		delete(s.servers, p)
	}
	s.mu.Unlock()
	if mine {
		server.Close()
		s.fail(p, err)
	}
}

func (s *Services) fail(p place, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed[p] == nil {
		s.log.Error("the port of a health check cannot be listened on, will try again: load balancers take this node for unhealthy",
			"service", p.service, "address", p.at, "error", err, "in", retryInterval)
	}
	s.failed[p] = err
}

func (s *Services) close() {
	s.mu.Lock()
	for p, server := range s.servers {
		server.Close()
		delete(s.servers, p)
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// verdict is the body of an answer about a Service.
type verdict struct {
	Service             serviceName `json:"service"`
	LocalEndpoints      int         `json:"localEndpoints"`
	ServiceProxyHealthy bool        `json:"serviceProxyHealthy"`
}

type serviceName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// about answers whatever is asked for, as kube-proxy does.
func (s *Services) about(service model.Name) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		state := s.state(service)
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(state.LocalEndpoints))
		respond(w, state.Well(), verdict{
			serviceName{service.Namespace, service.Name}, state.LocalEndpoints, state.ProxyHealthy,
		})
	})
}

func (s *Services) state(service model.Name) State {
	s.mu.Lock()
	check := s.checks[service]
	s.mu.Unlock()
	return State{Service: service, HealthCheck: check, ProxyHealthy: s.healthy(service)}
}

// State is what is answered about a Service, and where.
type State struct {
	Service model.Name
	model.HealthCheck
	ProxyHealthy bool
	Listening    []netip.AddrPort // sorted
	Error        string           // why not everywhere, if so: one line
}

// Well says that the answer is 200.
func (s State) Well() bool { return s.LocalEndpoints > 0 && s.ProxyHealthy }

// States returns the state of each Service that asks for a health check,
// sorted by name.
func (s *Services) States() []State {
	s.mu.Lock()
	states := make(map[model.Name]State, len(s.checks))
	for service, check := range s.checks {
		states[service] = State{Service: service, HealthCheck: check}
	}
	for _, p := range slices.SortedFunc(maps.Keys(s.servers), place.compare) {
		if state, ok := states[p.service]; ok {
			state.Listening = append(state.Listening, p.at)
			states[p.service] = state
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(s.failed), place.compare) {
		if state, ok := states[p.service]; ok {
			if state.Error != "" {
				state.Error += "; "
			}
			state.Error += s.failed[p].Error()
			states[p.service] = state
		}
	}
	s.mu.Unlock()
	sorted := slices.SortedFunc(maps.Values(states), func(a, b State) int { return a.Service.Compare(b.Service) })
	for i := range sorted {
		sorted[i].ProxyHealthy = s.healthy(sorted[i].Service)
	}
	return sorted
}

// Held are the addresses and ports on which these servers listen.
func (s *Services) Held() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make([]netip.AddrPort, 0, len(s.servers))
	for p := range s.servers {
		held = append(held, p.at)
	}
	return held
}
