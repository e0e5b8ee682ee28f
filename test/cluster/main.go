// SPDX-License-Identifier: Apache-2.0

// Command cluster brings up a real Kubernetes cluster of three nodes on one
// machine, with a Service proxy on each, and runs upstream's end-to-end tests
// against it. `make e2e` builds what it needs and starts it. Instead of tests,
// it replays an incident of the API server against Fairlead: `make e2e-replay`.
//
// The program plays every part itself: run, which the user starts, makes a
// PID, a network and a mount namespace, in which init is process 1; control
// starts the control plane and the tests there; node is the first process of
// each node. What all of them leave to the machine, the janitor removes, which
// outlives run. So whoever is killed, everything ends, and nothing stays.
//
// It knows nothing of how a proxy works: what is special about one is in
// proxy.go.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
)

// The exit statuses besides 0.
const (
	exitFailed = 1 // specs failed
	exitBroken = 2 // the cluster did not come up, or not to the end
)

// errSpecs says that upstream's tests, or the replay, found something.
var errSpecs = errors.New("specs failed")

func main() {
	part, args := "run", os.Args[1:]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		part, args = args[0], args[1:]
	}
	err := play(part, args)
	switch {
	case err == nil:
		return
	case errors.Is(err, errSpecs):
		os.Exit(exitFailed)
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", part, err)
	os.Exit(exitBroken)
}

func play(part string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch part {
	case "run":
		return withOptions(args, func(o options) error { return run(ctx, o, args) })
	case "init":
		return initialize(args)
	case "control":
		return withOptions(args, func(o options) error { return control(ctx, o) })
	case "node":
		return beNode(ctx, os.Stdin)
	case "client":
		return beClient(ctx, args)
	case "janitor":
		return janitor(os.Stdin)
	}
	return fmt.Errorf("there is no such part; see -help")
}

// options are what the user chooses. They are handed on from part to part as
// they were written.
type options struct {
	proxy  proxy
	sets   []set
	focus  string
	replay replayOptions
	doctor bool // it is run, well and with faults, instead of any test
	folders
}

// waits says whether the cluster is for the user, who ends it.
func (o options) waits() bool { return len(o.sets) == 0 && !o.replay.on && !o.doctor }

func withOptions(args []string, do func(options) error) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	proxyName := flags.String("proxy", "fairlead", "the Service proxy of every node: "+strings.Join(proxyNames(), " or "))
	setNames := flags.String("sets", "services,more", "which sets of upstream's tests to run; none keeps the cluster up until it is interrupted")
	focus := flags.String("focus", "", "run only the specs of the sets whose name matches this regular expression")
	cache := flags.String("cache", "", "folder of programs and images")
	var o options
	o.replay.addTo(flags)
	flags.BoolVar(&o.doctor, "doctor", false, "run fairlead doctor on the cluster, well and with faults, instead of tests")
	var usage bytes.Buffer
	flags.SetOutput(&usage)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage.String())
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w; see -help", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("arguments that are no flags: %q", flags.Args())
	}
	if _, err := regexp.Compile(*focus); err != nil {
		return fmt.Errorf("read -focus: %w", err)
	}
	o.focus = *focus
	if err := o.find(*cache, *proxyName, *setNames); err != nil {
		return err
	}
	return do(o)
}

// find takes what the user chose by name.
func (o *options) find(cache, proxyName, setNames string) (err error) {
	if o.folders, err = newFolders(cache); err != nil {
		return err
	}
	if o.proxy, err = findProxy(proxyName); err != nil {
		return err
	}
	if err := o.replay.check(o.proxy.name); err != nil {
		return err
	}
	if o.replay.on && o.doctor {
		return errors.New("-replay and -doctor exclude each other")
	}
	if o.replay.on || o.doctor {
		return nil // it is played instead of any set
	}
	o.sets, err = findSets(setNames)
	return err
}
