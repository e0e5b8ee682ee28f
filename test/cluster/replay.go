// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/test/cluster/judge"
)

// replayOptions are for the replay of the incident, in place of upstream's
// tests.
type replayOptions struct {
	on          bool
	rounds      int
	retainLimit string
}

const defaultRounds = 5

func (r *replayOptions) addTo(flags *flag.FlagSet) {
	flags.BoolVar(&r.on, "replay", false, "replay the incident with Fairlead instead of running tests: API servers stop and start beneath kubelets and pods that reach them by Services")
	flags.IntVar(&r.rounds, "rounds", defaultRounds, "of the replay, in each of which one API server stops")
	flags.StringVar(&r.retainLimit, "retain-limit", "", "what the agents of the replay get as --retain-limit; 0 shows that without it pods are locked out")
}

func (r *replayOptions) check(proxy string) error {
	switch {
	case !r.on && (r.rounds != defaultRounds || r.retainLimit != ""):
		return errors.New("-rounds and -retain-limit are for -replay, which is not given")
	case r.on && proxy != "fairlead":
		return fmt.Errorf("-replay looks at Fairlead's agents: it does without -proxy %s", proxy)
	case r.rounds < 1:
		return fmt.Errorf("-rounds %d: there must be one at least", r.rounds)
	case r.retainLimit == "":
		return nil
	}
	if _, err := time.ParseDuration(r.retainLimit); err != nil {
		return fmt.Errorf("-retain-limit: %w", err)
	}
	return nil
}

func (r *replayOptions) agentFlags() []string {
	if r.retainLimit == "" {
		return nil
	}
	return []string{"--retain-limit=" + r.retainLimit}
}

// asIs says whether the replay is of what users have.
func (r *replayOptions) asIs() bool { return r.retainLimit == "" }

// How long the parts of the replay may take, and how long nothing happens
// before and after it.
const (
	emptyTimeout  = 15 * time.Second // a server takes its address out at once
	returnTimeout = 30 * time.Second // the other one puts it back within 10 s
	retainTimeout = 500 * time.Millisecond
	endTimeout    = 2 * time.Minute // a server serves watches for a minute
	calm          = 15 * time.Second
)

// kubeletServers is where kubelets are told that the API server is, if that is
// a Service: default/kubernetes or the load balancer. The third node, which
// depends on neither, shows what is due to the servers alone.
func kubeletServers() map[string]string {
	nodes := machines()
	return map[string]string{nodeUser(nodes[0]): apiServiceIP + ":443", nodeUser(nodes[1]): intranetIP + ":443"}
}

// clientTargets are the addresses by which pods know the API server.
func clientTargets() []string {
	return []string{"https://kubernetes.default.svc:443", "https://" + intranetIP + ":443"}
}

// setStage makes what kubelets of the replay depend on.
func (c *controller) setStage(ctx context.Context) error {
	if !c.replay.on {
		return nil
	}
	// A server that stops leaves connections that it has not accepted to the
	// other one; they would be reset.
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_migrate_req", []byte("1"), 0); err != nil {
		return err
	}
	objects, err := render("intranet.yaml", map[string]any{"Server": controlIP})
	if err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, objects, "apply", "--filename=-"); err != nil {
		return err
	}
	// A cloud's controller would do this.
	_, err = c.kubectl(ctx, nil, "patch", "service/kubernetes-intranet", "--namespace=default", "--subresource=status", "--type=merge",
		fmt.Sprintf(`--patch={"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, intranetIP))
	return err
}

// replay is what the incident is played against.
type replay struct {
	*controller
	agents   *agents
	observer *observer
}

// playIncident lets API servers stop and start, and writes down how the
// cluster took it.
func (c *controller) playIncident(ctx context.Context) error {
	r, err := c.startReplay(ctx)
	if err != nil {
		return err
	}
	facts := judge.Facts{}
	for i := range c.replay.rounds {
		round, err := r.play(ctx, c.servers[i%len(c.servers)])
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		facts.Rounds = append(facts.Rounds, round)
		c.say("round %d: %s stopped, default/kubernetes was empty for %s", i+1, round.Stopped, round.Returned.Sub(round.Emptied).Round(10*time.Millisecond))
	}
	if err := pause(ctx, calm); err != nil {
		return err
	}
	if err := r.note(ctx, &facts); err != nil {
		return err
	}
	return judge.Judge(facts).Save(c.replayReport())
}

// startReplay starts the pods and those who look on, and leaves them time to
// get going.
func (c *controller) startReplay(ctx context.Context) (*replay, error) {
	if err := c.startClients(ctx); err != nil {
		return nil, err
	}
	client, err := c.connectClient()
	if err != nil {
		return nil, err
	}
	observer, err := observe(ctx, client)
	if err != nil {
		return nil, err
	}
	r := &replay{c, newAgents(c.nodes, c.fairlead()), observer}
	r.agents.watch(ctx)
	err = eventually(ctx, readyTimeout, "every pod is answered", func(context.Context) error { return r.answered() })
	if err != nil {
		return nil, err
	}
	c.say("pods ask the API server at %s", strings.Join(clientTargets(), " and "))
	return r, pause(ctx, calm)
}

// startClients runs this program in a pod on each node.
func (c *controller) startClients(ctx context.Context) error {
	if err := copyProgram(c.run("cluster"), "/proc/self/exe"); err != nil {
		return err
	}
	if err := os.Mkdir(c.notes(), 0o755); err != nil {
		return err
	}
	objects, err := render("clients.yaml", map[string]any{"Program": c.run("cluster"), "Notes": c.notes(), "Targets": clientTargets()})
	if err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, objects, "apply", "--filename=-"); err != nil {
		return err
	}
	_, err = c.kubectl(ctx, nil, "rollout", "status", "daemonset/client", "--namespace=replay", "--timeout="+readyTimeout.String())
	return err
}

// connectClient returns a client whose complaints about servers that go away
// are kept from the user.
func (c *controller) connectClient() (kubernetes.Interface, error) {
	log, err := os.Create(filepath.Join(c.folders.logs(), "observer.log"))
	if err != nil {
		return nil, err
	}
	klog.LogToStderr(false)
	klog.SetOutput(log)
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig(c.admin.name))
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// play is one round of the incident: a server stops, and takes the address of
// all of them out of default/kubernetes; a controller touches the load
// balancer's Service; the agents start again; the other server puts the address
// back; the one that stopped comes back.
func (r *replay) play(ctx context.Context, server *apiServer) (round judge.Round, err error) {
	before, err := r.agents.processes(ctx)
	if err != nil {
		return round, err
	}
	round = judge.Round{Stopped: server.name, Asked: time.Now()}
	if err := server.terminate(); err != nil {
		return round, err
	}
	if round.Emptied, err = r.endpoint(ctx, emptyTimeout, round.Asked, true); err != nil {
		return round, err
	}
	if err := r.touchLoadBalancer(ctx); err != nil {
		return round, err
	}
	r.waitForRetention(ctx)
	round.Killed = time.Now()
	if err := r.agents.replace(ctx, before); err != nil {
		return round, err
	}
	round.Serving = time.Now()
	if round.Returned, err = r.endpoint(ctx, returnTimeout, round.Emptied, false); err != nil {
		return round, err
	}
	return round, r.bringBack(ctx, server, &round)
}

// touchLoadBalancer changes the Service as a cloud's controller does that
// begins anew.
func (r *replay) touchLoadBalancer(ctx context.Context) error {
	_, err := r.kubectl(ctx, nil, "annotate", "--overwrite", "service/kubernetes-intranet", "--namespace=default",
		"service.cloud.tencent.com/sync-begin-time="+time.Now().UTC().Format(time.RFC3339Nano))
	return err
}

// bringBack starts a server again as soon as it has ended.
func (r *replay) bringBack(ctx context.Context, server *apiServer, round *judge.Round) error {
	select {
	case <-server.done:
	case <-time.After(endTimeout):
		return fmt.Errorf("%s did not end within %s", server.name, endTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	round.Ended = time.Now()
	// Who was connected to it goes to the other one before it listens again.
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	if err := r.startServer(ctx, server); err != nil {
		return err
	}
	round.Ready = time.Now()
	return pause(ctx, time.Second)
}

// endpoint waits until default/kubernetes is empty, or is no longer, and
// returns since when.
func (r *replay) endpoint(ctx context.Context, limit time.Duration, after time.Time, empty bool) (since time.Time, err error) {
	what := "default/kubernetes has an endpoint"
	if empty {
		what = "default/kubernetes is empty"
	}
	err = eventually(ctx, limit, what, func(context.Context) error {
		since, err = r.observer.endpointSince(after, empty)
		return err
	})
	return since, err
}

// waitForRetention leaves the agents a moment to show what they do. It is for
// the judge to say whether they did.
func (r *replay) waitForRetention(ctx context.Context) {
	for end := time.Now().Add(retainTimeout); time.Now().Before(end) && !r.agents.allSee(judge.SawRetained); {
		if pause(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// note writes down what was seen.
func (r *replay) note(ctx context.Context, facts *judge.Facts) (err error) {
	facts.Ill = map[string]string{}
	for _, node := range r.agents.names() {
		if complaint := r.agents.complaint(ctx, node); complaint != "" {
			facts.Ill[node] = complaint
		}
	}
	facts.Clients = r.clients()
	facts.Looks = r.agents.allLooks()
	r.observer.note(facts)
	facts.End = time.Now()
	facts.Lines, err = r.lines()
	return err
}

func (r *replay) clients() []judge.Client {
	var clients []judge.Client
	for _, node := range r.agents.names() {
		for _, target := range clientTargets() {
			clients = append(clients, judge.Client{Name: node, Target: target})
		}
	}
	return clients
}

// answered says whether every client was answered at least once.
func (r *replay) answered() error {
	lines, err := r.lines()
	if err != nil {
		return err
	}
	answered := map[judge.Client]bool{}
	for _, line := range lines {
		if line.Attempt != nil && line.Attempt.Status == 200 {
			answered[line.Attempt.Client] = true
		}
	}
	for _, client := range r.clients() {
		if !answered[client] {
			return fmt.Errorf("%s was not, at %s", client.Name, client.Target)
		}
	}
	return nil
}

// lines are those of all clients.
func (r *replay) lines() ([]judge.Line, error) {
	var all []judge.Line
	for _, node := range r.agents.names() {
		lines, err := readNotes(filepath.Join(r.notes(), node+".jsonl"))
		if err != nil {
			return nil, err
		}
		all = append(all, lines...)
	}
	return all, nil
}

// readNotes finds nothing where a client has not begun to write.
func readNotes(path string) ([]judge.Line, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines, err := judge.ReadLines(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return lines, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
