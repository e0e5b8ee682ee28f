// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// roleUser is the role of a process that uses the API server, as pods and
// kubelets do: it opens connections all the while, and holds a watch.
const roleUser = "api-user"

const (
	askEvery   = 50 * time.Millisecond
	askTimeout = 10 * time.Second // what no answer takes, however busy the machine
	// serverName is a name that every API server's certificate has, whichever
	// Service leads to it.
	serverName = "kubernetes.default.svc"
)

// tally is what a user has found at one address so far.
type tally struct {
	Answers map[string]int // connections with a verified server, by the status of its answer
	Failed  int            // connections that came to no answer
	First   string         // the first failure
	Watches int            // watches that were opened
	Cut     int            // watches that ended
	Unheld  int            // attempts to open one that failed
	Refusal string         // the first of them
	Events  int            // of the watches
}

// tried counts new connections.
func (t tally) tried() int {
	n := t.Failed
	for _, count := range t.Answers {
		n += count
	}
	return n
}

// user is such a process.
type user struct {
	t       testing.TB
	process *lab.Process
}

// report returns what was found at each address so far.
func (u *user) report() map[string]tally {
	u.t.Helper()
	u.process.WriteLine("")
	var tallies map[string]tally
	if err := json.Unmarshal([]byte(u.process.ReadLine()), &tallies); err != nil {
		u.t.Fatalf("a user's report: %v", err)
	}
	return tallies
}

// users are processes of a pod and of the node, by where they are.
type users map[string]*user

// addresses are those by which they use the API server.
var addresses = []string{serviceAddress, intranetAddress, vip, nodePort}

// startUsers returns once each has a watch and an answer at every address.
func (s *stage) startUsers(t *testing.T) users {
	t.Helper()
	all := users{}
	for name, place := range map[string]lab.Place{"pod": s.pod, "node": s.Place()} {
		args := append([]string{s.cluster.Kubeconfig}, addresses...)
		all[name] = &user{t, place.StartRole(t, roleUser, args...)}
	}
	all.wait(t, func(got tally) bool { return got.Answers["200"] > 0 && got.Watches > 0 })
	return all
}

// report is what each has found so far, by who and through what.
func (u users) report() map[string]tally {
	all := map[string]tally{}
	for name, each := range u {
		for address, got := range each.report() {
			all[name+" through "+address] = got
		}
	}
	return all
}

// wait waits until each has found enough.
func (u users) wait(t *testing.T, enough func(tally) bool) {
	t.Helper()
	rig.Eventually(t, func() error {
		for what, got := range u.report() {
			if !enough(got) {
				return fmt.Errorf("%s: %+v", what, got)
			}
		}
		return nil
	})
}

// useAPI is the user's process: it writes a report for each line that it reads.
func useAPI(args []string) error {
	users := map[string]*counts{}
	for _, address := range args[1:] {
		config, err := clientcmd.BuildConfigFromFlags("https://"+address, args[0])
		if err != nil {
			return err
		}
		config.ServerName = serverName
		users[address] = &counts{tally: tally{Answers: map[string]int{}}}
		if err := users[address].use(config); err != nil {
			return err
		}
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		report := map[string]tally{}
		for address, c := range users {
			report[address] = c.read()
		}
		if err := out.Encode(report); err != nil {
			return err
		}
	}
	return nil
}

// counts is a tally in the making.
type counts struct {
	mu sync.Mutex
	tally
}

func (c *counts) read() tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	read := c.tally
	read.Answers = maps.Clone(read.Answers)
	return read
}

func (c *counts) note(what func(*tally)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what(&c.tally)
}

// use begins to open connections, and a watch, until the process ends.
func (c *counts) use(config *rest.Config) error {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	go func() {
		for range time.Tick(askEvery) {
			c.ask(tlsConfig, config)
		}
	}()
	go func() {
		for {
			c.watch(client)
		}
	}()
	return nil
}

// ask opens a connection, verifies who answers, and asks how it is. It speaks
// HTTP/2 as clients of API servers do: a server that stops tells those that it
// has accepted but not served to go elsewhere.
func (c *counts) ask(trust *tls.Config, config *rest.Config) {
	request, err := http.NewRequest(http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		panic(err) // the address was read before
	}
	request.Header.Set("Authorization", "Bearer "+config.BearerToken)
	client := &http.Client{Timeout: askTimeout, Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	c.note(func(t *tally) {
		if err != nil {
			t.Failed++
			t.First = cmp.Or(t.First, stamped(err))
			return
		}
		t.Answers[strconv.Itoa(response.StatusCode)]++
	})
}

// watch holds one watch until it ends. One that cannot be opened is tried again
// as soon as clients of an API server do that.
func (c *counts) watch(client kubernetes.Interface) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := client.CoreV1().Services(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		c.note(func(t *tally) {
			t.Unheld++
			t.Refusal = cmp.Or(t.Refusal, stamped(err))
		})
		time.Sleep(askEvery)
		return
	}
	c.note(func(t *tally) { t.Watches++ })
	for range w.ResultChan() {
		c.note(func(t *tally) { t.Events++ })
	}
	c.note(func(t *tally) { t.Cut++ })
}

func stamped(err error) string {
	return fmt.Sprintf("%s: %v", time.Now().Format("15:04:05.000"), err)
}
