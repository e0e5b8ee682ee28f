// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/fairlead-io/fairlead/internal/api"
)

// Config is what a Client starts from.
type Config struct {
	Kubeconfig string   // a file; empty: the service account of this pod
	Servers    []string // the values of --api-server
	// Exempt marks a socket, before it connects, as one whose target the
	// agent's programs leave alone; nil where no such programs are.
	Exempt    func(fd uintptr) error
	Log       *slog.Logger
	Heartbeat time.Duration // from one to the next; 0: 10 s
	Timeout   time.Duration // of a heartbeat; 0: 5 s
}

// How much is kept: more addresses than any cluster has API servers, and few
// enough to try at once.
const (
	maxLearned = 32 // per source
	maxKnown   = 32
)

var errNotVerifying = errors.New("certificates are not verified against an authority of the cluster's own, so nobody can tell who answers")

// Client is a way to the API server that outlives any of its endpoints. All
// methods are safe for concurrent use, except that Connect comes before Run.
type Client struct {
	cfg      Config
	log      *slog.Logger
	config   *rest.Config // with the credentials; its Host is where they are from
	dialer   *net.Dialer
	own      string // the name that the certificate there must have
	verifies bool

	doubted chan struct{} // buffered 1: the endpoint in use is in doubt
	learned chan struct{} // buffered 1: there is something better to try
	changed chan struct{} // buffered 1: for Changed

	mu        sync.Mutex
	endpoints []endpoint
	fresh     bool   // the slices were heard of in this run
	best      string // key of the endpoint used last
	link      *link  // in use; nil: none has answered, or it turned out to be foreign
	since     time.Time
	answered  time.Time
	doubtful  bool          // a request over link failed, and no race has ended since
	mute      bool          // the last race found nobody
	turned    chan struct{} // closed and replaced when link or doubtful change
	found     chan struct{} // closed and replaced when a link comes in use, or answers again
}

// New reads the credentials, and where API servers are by the operator's word.
// It makes no request.
func New(cfg Config) (*Client, error) {
	config, err := RESTConfig(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return newClient(cfg, config)
}

func newClient(cfg Config, config *rest.Config) (*Client, error) {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 10*time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{
		cfg:      cfg,
		log:      cfg.Log,
		config:   config,
		dialer:   newDialer(cfg.Exempt, cfg.Timeout),
		verifies: !config.Insecure && (config.CAFile != "" || len(config.CAData) > 0),
		doubted:  make(chan struct{}, 1),
		learned:  make(chan struct{}, 1),
		changed:  make(chan struct{}, 1),
		turned:   make(chan struct{}),
		found:    make(chan struct{}),
	}
	rereadToken(config)
	if err := c.addConfigured(); err != nil {
		return nil, err
	}
	return c, nil
}

// rereadToken has the token read from its file again after a minute, as
// client-go does, and besides as soon as a server does not know it any more.
func rereadToken(config *rest.Config) {
	if config.BearerTokenFile == "" {
		return
	}
	tokens := transport.NewCachedFileTokenSource(config.BearerTokenFile)
	config.Wrap(transport.ResettableTokenSourceWrapTransport(tokens))
	config.BearerToken, config.BearerTokenFile = "", ""
	config.ExecProvider = nil // client-go prefers a token to it, too
}

// addConfigured fills in the endpoints that the operator named, and finds out
// whether the credentials can be used.
func (c *Client) addConfigured() error {
	own, source, err := c.ownServer()
	if err != nil {
		return err
	}
	c.own = cmp.Or(c.config.ServerName, own.Hostname())
	c.put(own, source)
	for _, value := range c.cfg.Servers {
		u, err := parseServer(value)
		if err != nil {
			return err
		}
		c.put(u, flag)
	}
	l, err := newLink(c.config, c.dialer, own, c.own, c.cfg.Heartbeat)
	if err != nil {
		return err
	}
	l.leave()
	if !c.verifies {
		c.log.Warn("only the configured API servers are used, not those that the API names", "because", errNotVerifying)
	}
	return nil
}

// ownServer is the server that comes with the credentials.
func (c *Client) ownServer() (url.URL, Source, error) {
	source, from := pod, "the environment of this pod"
	if c.cfg.Kubeconfig != "" {
		source, from = kubeconfig, "the kubeconfig "+c.cfg.Kubeconfig
	}
	u, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return url.URL{}, source, fmt.Errorf("reading the server's URL in %s: it is no URL", from)
	}
	own, err := canonical(u)
	if err != nil {
		return url.URL{}, source, fmt.Errorf("reading the server's URL in %s: %w", from, err)
	}
	return own, source, nil
}

// put has an endpoint named by a source. The caller holds the lock, or is New.
func (c *Client) put(u url.URL, source Source) *endpoint {
	i := c.index(u.String())
	if i < 0 {
		i = len(c.endpoints)
		c.endpoints = append(c.endpoints, endpoint{url: u, lot: rand.Uint32(), state: api.EndpointUntried, since: time.Now()})
	}
	c.endpoints[i].add(source)
	return &c.endpoints[i]
}

func (c *Client) index(key string) int {
	return slices.IndexFunc(c.endpoints, func(e endpoint) bool { return e.key() == key })
}

// REST returns a configuration for client-go. Requests go where the Client
// finds the API server, with the credentials that it read.
func (c *Client) REST() *rest.Config {
	return &rest.Config{Host: anyEndpoint, Transport: c, QPS: c.config.QPS, UserAgent: c.config.UserAgent}
}

// Direct returns a configuration of the endpoint in use, for what does not send
// requests but opens connections of its own, as commands in pods do. It is good
// for as long as the endpoint is.
func (c *Client) Direct() (*rest.Config, error) {
	l, _, _ := c.inUse()
	if l == nil {
		return nil, c.unreachable()
	}
	config := rest.CopyConfig(c.config)
	config.Host = l.url.String()
	config.ServerName = l.tls.ServerName
	config.Dial = c.dialer.DialContext
	return config, nil
}

// Learn replaces the addresses that a source named. The first one of the file
// is the last that was good. An empty list is ignored: that nothing is named any
// more does not make what was named before wrong.
func (c *Client) Learn(source Source, at []netip.AddrPort) {
	at = slices.DeleteFunc(slices.Clone(at), func(a netip.AddrPort) bool { return !usable(a) })
	at = at[:min(len(at), maxLearned)]
	if !c.verifies || len(at) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.known()
	c.fresh = c.fresh || source == Slices
	named := make(map[string]bool)
	for _, a := range at {
		u := atAddress(a)
		named[u.String()] = true
		c.learn(u, source)
	}
	for i := range c.endpoints {
		if !named[c.endpoints[i].key()] {
			c.endpoints[i].drop(source)
		}
	}
	c.forget()
	if source == File && c.best == "" {
		first := atAddress(at[0])
		c.best = first.String()
	}
	if !slices.Equal(before, c.known()) {
		signal(c.changed)
	}
	if c.secondBest() {
		signal(c.learned)
	}
}

// learn adds one address. What a source names anew is worth a try whatever was
// there before.
func (c *Client) learn(u url.URL, source Source) {
	i := c.index(u.String())
	anew := i < 0 || !c.endpoints[i].namedBy(source)
	e := c.put(u, source)
	if anew && e.state == api.EndpointForeign {
		e.state, e.since, e.err = api.EndpointUntried, time.Now(), nil
	}
}

// forget removes the endpoints that nobody names any more, and the outdated
// ones, but for the one in use.
func (c *Client) forget() {
	c.endpoints = slices.DeleteFunc(c.endpoints, func(e endpoint) bool {
		return (len(e.sources) == 0 || c.outdated(e)) && !c.uses(e.key())
	})
}

func (c *Client) uses(key string) bool { return c.link != nil && c.link.url.String() == key }

// secondBest says that a better endpoint than the one in use may be there.
func (c *Client) secondBest() bool {
	if c.link == nil {
		return true
	}
	i := c.index(c.link.url.String())
	return i < 0 || c.endpoints[i].isService() || c.endpoints[i].state != api.EndpointAnswers
}

// Known returns the addresses that are worth remembering for the next run, the
// one in use or used last in front. It leaves out the Service address of the
// pod's environment, what cannot be said by an address alone, and what is
// outdated.
func (c *Client) Known() []netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known()
}

func (c *Client) known() []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range c.ordered() {
		at, ok := e.address()
		if ok && !e.isService() && !c.outdated(e) && len(out) < maxKnown {
			out = append(out, at)
		}
	}
	return out
}

// outdated says that only an earlier run names an endpoint at which nothing good
// is, although the API has said by now where its servers are. So it goes with
// what the image of a machine remembers of another cluster.
func (c *Client) outdated(e endpoint) bool {
	failed := e.state == api.EndpointSilent || e.state == api.EndpointForeign
	return c.fresh && failed && !e.namedBy(flag, kubeconfig, Slices, pod)
}

// ordered returns the endpoints in the order in which they are tried.
func (c *Client) ordered() []endpoint {
	out := slices.Clone(c.endpoints)
	slices.SortStableFunc(out, compareEndpoints(c.best))
	return out
}

// Found returns a channel that is closed when the next endpoint comes in use, or
// when the one in use answers again: who waits to ask once more need not wait
// any longer.
func (c *Client) Found() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}

// Changed is signalled when Known, or the endpoint in use, may have changed.
func (c *Client) Changed() <-chan struct{} { return c.changed }

// Status says how the agent reaches the API server. What it says of the state
// file is for others to fill in.
func (c *Client) Status() api.APIServer {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := api.APIServer{Since: c.since, Answered: c.answered, Endpoints: []api.APIEndpoint{}}
	if c.link != nil {
		s.Current = c.link.url.String()
	}
	for _, e := range c.ordered() {
		shown := api.APIEndpoint{URL: e.key(), Sources: []string{}, State: e.state, Since: e.since}
		for _, source := range e.sources {
			shown.Sources = append(shown.Sources, string(source))
		}
		if e.err != nil {
			shown.Error = e.err.Error()
		}
		s.Endpoints = append(s.Endpoints, shown)
	}
	return s
}

// String names the endpoint in use, or all that will be tried.
func (c *Client) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		return c.link.url.String()
	}
	var urls []string
	for _, e := range c.ordered() {
		urls = append(urls, e.key())
	}
	return strings.Join(urls, ", ")
}

// signal leaves a note for a reader who may be busy.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
