// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// gap is what happens while default/kubernetes has no endpoint.
type gap struct {
	flags   []string // of the agent
	emptied []string // how the rows of default/kubernetes read meanwhile
	before  func() error
	between func() error // when a new agent runs
	moral   string       // of the controller's note
}

// attempts bounds how often a gap may close too early: the server that goes on
// writes the endpoint every ten seconds, and has just done so.
const attempts = 3

// resize is the incident with all guards.
func (i *incident) resize(ctx context.Context) error {
	i.title("2. The cluster is resized: an API server is replaced")
	i.say("A pod and the node use the API server through both Services: a new connection each %s, with TLS\nverified, and a watch held open. A second API server starts at the same address.", visitEvery)
	if err := i.next(ctx); err != nil {
		return err
	}
	if err := i.visit(ctx); err != nil {
		return err
	}
	err := i.play(ctx, gap{
		emptied: []string{retained, unverified},
		before: func() error {
			i.say("Fairlead goes on with the backend that default/kubernetes had: that of the API server's own Service,\nand of those named by --retain, and only while it answers.")
			if err := i.rows(ownService, retained); err != nil {
				return err
			}
			if err := i.frontends(); err != nil {
				return err
			}
			i.say("Cilium 1.18, releasing that backend, looked for its instances by the prefix default/kubernetes,\nand released that of kubernetes-intranet with it. Here a Service has its own backends.")
			return nil
		},
		between: func() error {
			i.say("The new agent took over what the kernel had, and reached the API server past every Service.")
			return i.rows(ownService, retained)
		},
		moral: "Cilium's agent then found no backend of kubernetes-intranet, and wrote that to the kernel: connect()\nto the VIP became EPERM, for its own watches as well. Here that Service's rows are as they were.",
	})
	if err != nil {
		return err
	}
	return i.verdict()
}

func (i *incident) verdict() error {
	if err := i.rows(ownService, served); err != nil {
		return err
	}
	if _, err := i.run("explain", ownService); err != nil {
		return err
	}
	if err := i.sound(); err != nil {
		return err
	}
	i.say("Since %s was told to stop:", i.leaving.name)
	return i.counts("", true)
}

// sound asks whether the layers agree and the agent is well.
func (i *incident) sound() error {
	findings, err := i.run("diff")
	if err != nil {
		return err
	}
	if findings {
		return errors.New("the layers differ")
	}
	return i.until("the agent to be healthy", func() (bool, error) {
		status, err := i.client.Status(context.Background())
		if err == nil && !status.Healthy {
			err = fmt.Errorf("it finds: %q", status.Findings)
		}
		return err == nil, err
	})
}

// next starts the API server that is to go on.
func (i *incident) next(ctx context.Context) (err error) {
	i.leaving = i.serving
	i.serving, err = i.plane.add(ctx)
	return err
}

// play is the incident from the moment when an API server is told to stop. It
// plays again if the endpoint comes back before all has happened.
func (i *incident) play(ctx context.Context, g gap) error {
	for range attempts {
		again, err := i.gap(ctx, g)
		if err != nil || !again {
			return err
		}
		i.say("The address was back before all had happened: once more, with another API server.")
		if err := i.next(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("the address came back too early, %d times", attempts)
}

func (i *incident) gap(ctx context.Context, g gap) (again bool, err error) {
	i.say("%s gets SIGTERM. It deletes its lease, which is everybody's, and empties default/kubernetes:", i.leaving.name)
	i.forget()
	if err := i.leaving.stop(); err != nil {
		return false, fmt.Errorf("stop %s: %w", i.leaving.name, err)
	}
	if err := i.empty(ctx, true); err != nil {
		return false, err
	}
	if err := i.kubectl("get", "endpointslice", "kubernetes", "-o", "yaml"); err != nil {
		return false, err
	}
	if err := i.rows(ownService, g.emptied...); err != nil {
		return false, err
	}
	if err := g.before(); err != nil {
		return false, err
	}
	i.say("The agent is killed, and starts again (a helm upgrade did that to Cilium's).")
	if err := i.killAgent(); err != nil {
		return false, err
	}
	if err := i.startIncidentAgent(g.flags...); err != nil {
		return false, err
	}
	if err := g.between(); err != nil {
		return false, err
	}
	i.say("service-controller has lost its watches, and notes on kubernetes-intranet when it synchronised.")
	if err := i.kubectl("annotate", "service", "kubernetes-intranet", "--overwrite",
		"service.cloud.tencent.com/sync-begin-time="+time.Now().Format(time.RFC3339)); err != nil {
		return false, err
	}
	return i.returned(ctx, g.moral)
}

// returned waits until the endpoint is back, and says whether that was too
// early.
func (i *incident) returned(ctx context.Context, moral string) (early bool, err error) {
	n, err := i.plane.endpoints(ctx)
	if err != nil {
		return false, err
	}
	if err := i.rows(intranetService, served); err != nil {
		return false, err
	}
	i.say("%s", moral)
	if err := i.empty(ctx, false); err != nil {
		return false, err
	}
	i.say("%s has renewed the lease: the endpoint is back.", i.serving.name)
	return n > 0, nil
}

// unretained is the incident for an operator who wants nothing to be retained.
func (i *incident) unretained(ctx context.Context) error {
	i.title("3. The same with --retain-limit 0: what the guards are for")
	i.say("The agent starts again without retention; a third API server starts.")
	off := []string{"--retain-limit", "0"}
	if err := i.killAgent(); err != nil {
		return err
	}
	if err := i.startIncidentAgent(off...); err != nil {
		return err
	}
	if err := i.next(ctx); err != nil {
		return err
	}
	var monitored func() error
	err := i.play(ctx, gap{
		flags: off, emptied: []string{rejecting},
		before: i.frontends,
		between: func() error {
			status, err := i.client.Status(ctx)
			if err != nil {
				return err
			}
			i.say("Whoever dials default/kubernetes is refused, by the API's own word. The agent is not: it goes past\nall Services, to %s, and has read what it follows. One that dials the\nService, as most do, would be refused by what it wrote itself, and never hear of an endpoint again.", status.APIServer.Current)
			monitored, err = i.monitor()
			return err
		},
		moral: "kubernetes-intranet has its own slice, which nobody emptied: nothing of it has changed.",
	})
	if err != nil {
		return err
	}
	if err := i.rows(ownService, served); err != nil {
		return err
	}
	i.say("default/kubernetes is served again, for the agent never lost sight of it.")
	if err := monitored(); err != nil {
		return err
	}
	return i.compare(ctx)
}

// compare shows what it cost, and that it is over.
func (i *incident) compare(ctx context.Context) error {
	if err := i.sound(); err != nil {
		return err
	}
	if err := i.allAnswered(); err != nil {
		return err
	}
	i.say("Since %s was told to stop:", i.leaving.name)
	if err := i.counts(ownAddress, true); err != nil {
		return err
	}
	for _, v := range i.visitors {
		if v.through == ownAddress && v.found().failed == 0 {
			return fmt.Errorf("the %s was not refused at %s, although nothing was retained", v.from, v.through)
		}
	}
	i.forget()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
	}
	i.say("In the second after:")
	return i.counts("", false)
}

// close ends the play.
func (i *incident) close(context.Context) error {
	if err := i.keepRecording(); err != nil {
		return err
	}
	i.say("All went as told. The namespaces, the cgroup and %s are removed.", i.work)
	return nil
}
