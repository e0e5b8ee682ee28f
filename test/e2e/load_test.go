// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// load is processes that make new connections as fast as they can, and hold
// one open each, until they are told to stop.
type load struct {
	t    testing.TB
	stop chan struct{}
	wg   sync.WaitGroup

	mu    sync.Mutex
	tally map[string]traffic.Tally // by target
}

// target is where, and by which way, a process of a load connects.
type target struct {
	rig.Way
	to   rig.Pair
	port uint16
}

// loadWays are those that differ in the kernel's eyes.
var loadWays = []rig.Way{ways[0], ways[1], ways[5], ways[9]}

// at makes a target of each way that a load uses.
func at(to rig.Pair, port uint16) []target {
	var targets []target
	for _, w := range loadWays {
		targets = append(targets, target{w, to, port})
	}
	return targets
}

// startLoad starts a process for each target, in the place.
func startLoad(t testing.TB, place lab.Place, targets ...target) *load {
	t.Helper()
	// Ports of connections that were closed come back after a second.
	place.NetNS.Sysctl(t, "net.ipv4.tcp_tw_reuse", "1")
	l := &load{t: t, stop: make(chan struct{}), tally: map[string]traffic.Tally{}}
	var began sync.WaitGroup
	began.Add(len(targets))
	for _, target := range targets {
		client := traffic.StartClient(t, place)
		l.wg.Go(func() { l.run(client, target, sync.OnceFunc(began.Done)) })
	}
	began.Wait()
	return l
}

func (l *load) run(client *traffic.Client, target target, began func()) {
	defer began()
	to := target.Way.To(target.to, target.port).String()
	held, reply := client.Open(target.Network, to)
	l.count(target, reply)
	if reply.Error != "" {
		return
	}
	defer held.Close()
	holder := held.Ask()
	l.count(target, holder)
	for {
		l.add(target, client.Many(target.Network, to, 20))
		if !isUDP(target.Network) {
			l.count(target, held.Ask())
		}
		began()
		select {
		case <-l.stop:
			return
		default:
		}
	}
}

func (l *load) count(target target, reply traffic.Reply) {
	one := traffic.Tally{Servers: map[string]int{}, Errors: map[string]int{}}
	if reply.Error != "" {
		one.Errors[reply.Error]++
	} else if reply.Server != "" {
		one.Servers[reply.Server]++
	}
	l.add(target, one)
}

func (l *load) add(target target, more traffic.Tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := target.Name + " to " + target.Way.To(target.to, target.port).String()
	sum, ok := l.tally[key]
	if !ok {
		sum = traffic.Tally{Servers: map[string]int{}, Errors: map[string]int{}}
		l.tally[key] = sum
	}
	for name, n := range more.Servers {
		sum.Servers[name] += n
	}
	for name, n := range more.Errors {
		sum.Errors[name] += n
	}
}

// end stops the processes. None of their connections may have failed, neither
// the new ones nor those held open.
func (l *load) end() map[string]traffic.Tally {
	l.t.Helper()
	close(l.stop)
	l.wg.Wait()
	for target, tally := range l.tally {
		if len(tally.Errors) > 0 || len(tally.Servers) == 0 {
			l.t.Errorf("%s: %v failed, %v were answered", target, tally.Errors, tally.Servers)
		}
	}
	return maps.Clone(l.tally)
}
