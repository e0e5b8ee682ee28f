// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// visitEvery is how often a visitor opens a new connection, and visitTimeout
// what no answer takes, however busy the machine.
const (
	visitEvery   = 50 * time.Millisecond
	visitTimeout = 10 * time.Second
)

// visitor uses the API server by one address, as a pod or a kubelet does: it
// opens connections all the while, and holds a watch.
type visitor struct {
	from, through string
	dial          func(context.Context, string, string) (net.Conn, error)
	token         string
	plane         *plane

	mu sync.Mutex
	visits
}

// visits is what a visitor has found since a moment.
type visits struct {
	since    time.Time
	answered int
	failed   int
	first    string // how the first connection failed
	watches  int    // that were opened
	unheld   int    // that could not be opened
	events   int    // that watches told of
}

// watch says how the watch fared that was open at the beginning.
func (v visits) watch() string {
	switch {
	case v.unheld > 0:
		return fmt.Sprintf("refused %d times", v.unheld)
	case v.watches > 0:
		return fmt.Sprintf("opened again, %d times", v.watches)
	case v.events > 0:
		return fmt.Sprintf("held; events seen: %d", v.events)
	}
	return "held"
}

// visit goes on until ctx ends.
func (v *visitor) visit(ctx context.Context) {
	tick := time.NewTicker(visitEvery)
	defer tick.Stop()
	go func() {
		for ctx.Err() == nil {
			v.watch(ctx)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			v.connect(ctx)
		}
	}
}

func (v *visitor) found() visits {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.visits
}

// restart forgets what was found.
func (v *visitor) restart() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.visits = visits{since: time.Now()}
}

// note adds to what was found, unless it began before that counted.
func (v *visitor) note(began time.Time, what func(*visits)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !began.Before(v.since) {
		what(&v.visits)
	}
}

// connect opens one connection, verifies who answers, and asks how it is. A
// server that is about to stop may say so: it has answered.
func (v *visitor) connect(ctx context.Context) {
	began, client := time.Now(), v.client(visitTimeout)
	defer client.CloseIdleConnections()
	response, err := v.ask(ctx, client, "/readyz")
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	if ctx.Err() != nil {
		return
	}
	v.note(began, func(n *visits) {
		if err == nil {
			n.answered++
			return
		}
		n.failed++
		if n.first == "" {
			n.first = outcome(err)
		}
	})
}

// watch holds one watch until it ends.
func (v *visitor) watch(ctx context.Context) {
	began, client := time.Now(), v.client(0)
	defer client.CloseIdleConnections()
	response, err := v.ask(ctx, client, "/api/v1/namespaces/default/services?watch=1")
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s", response.Status)
		response.Body.Close()
	}
	if err != nil {
		v.note(began, func(n *visits) { n.unheld++ })
		time.Sleep(visitEvery)
		return
	}
	defer response.Body.Close()
	v.note(began, func(n *visits) { n.watches++ })
	// One line for each event.
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		v.note(time.Now(), func(n *visits) { n.events++ })
	}
}

// client makes connections of its own; 0 is without a time limit. It speaks
// HTTP/2 as clients of API servers do: a server that stops tells those that it
// has accepted but not served to go elsewhere.
func (v *visitor) client(limit time.Duration) *http.Client {
	return &http.Client{Timeout: limit, Transport: &http.Transport{
		DialContext: v.dial, TLSClientConfig: v.plane.authority.trust(apiName), ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: visitTimeout,
	}}
}

func (v *visitor) ask(ctx context.Context, client *http.Client, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+v.through+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+v.token)
	return client.Do(request)
}
