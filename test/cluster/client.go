// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/test/cluster/judge"
)

// A client is a pod that depends on the API server. It opens connections one
// after another, which is what programs cannot do in the incident, and holds a
// watch. All that it does stands in a file. It uses no client library, since
// these hide from their users what fails and is tried again.

// serviceAccount is the folder in which a pod finds its token.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

const (
	askInterval = 200 * time.Millisecond
	// askTimeout is for a whole attempt: long enough for a server that already
	// listens and takes its time to start.
	askTimeout = 30 * time.Second
	// watchSilence bounds the time without an event: leases are renewed all the
	// time.
	watchSilence = time.Minute
)

const (
	askPath = "/version"
	// watchPath is what changes in every cluster, of which the server ends the
	// watch from time to time.
	watchPath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?watch=true&timeoutSeconds=100"
)

// beClient asks the API server at each of the addresses, until it is ended. Its
// arguments are its name, the folder that it writes to, and the addresses.
func beClient(ctx context.Context, args []string) error {
	if len(args) < 3 {
		return errors.New("this part is not for people: it runs in a pod")
	}
	name, folder, targets := args[0], args[1], args[2:]
	file, err := os.OpenFile(filepath.Join(folder, name+".jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	notes := &notebook{encoder: json.NewEncoder(file)}
	for _, target := range targets {
		base, err := url.Parse(target)
		if err != nil {
			return err
		}
		c := client{judge.Client{Name: name, Target: target}, base, serviceAccount, notes}
		go every(ctx, func() { c.ask(ctx) })
		go every(ctx, func() { c.watch(ctx) })
	}
	<-ctx.Done()
	return notes.err()
}

// every does something again and again, a little apart.
func every(ctx context.Context, do func()) {
	for ticker := time.NewTicker(askInterval); ; {
		do()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// notebook is what all the clients of a process write to.
type notebook struct {
	mu      sync.Mutex
	encoder *json.Encoder
	failed  error
}

func (n *notebook) write(line judge.Line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed = errors.Join(n.failed, n.encoder.Encode(line))
}

func (n *notebook) err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

type client struct {
	judge.Client
	base    *url.URL
	account string // folder of the token
	notes   *notebook
}

// ask opens a connection for one question.
func (c client) ask(ctx context.Context) {
	if talk := c.open(ctx, askPath); talk != nil {
		talk.conn.Close()
	}
}

// watch holds a watch until it ends.
func (c client) watch(ctx context.Context) {
	talk := c.open(ctx, watchPath)
	if talk == nil {
		return
	}
	defer talk.conn.Close()
	if talk.response.StatusCode != http.StatusOK {
		return
	}
	w := judge.Watch{Client: c.Client, Opened: time.Now(), Server: talk.server}
	last := w.Opened
	for events := json.NewDecoder(talk.response.Body); ; {
		var event json.RawMessage
		err := errors.Join(talk.conn.SetDeadline(time.Now().Add(watchSilence)), events.Decode(&event))
		w.Ended = time.Now()
		w.Silent = max(w.Silent, w.Ended.Sub(last))
		last = w.Ended
		if err != nil {
			w.Error = ending(err)
			break
		}
		w.Events++
	}
	c.notes.write(judge.Line{Watch: &w})
}

// ending is empty for an end between two events, as the server makes it when
// the time of a watch is over.
func ending(err error) string {
	if errors.Is(err, io.EOF) {
		return ""
	}
	return err.Error()
}

// talk is a connection, and the answer to the first request on it.
type talk struct {
	conn     net.Conn
	server   string
	response *http.Response
}

// open makes a new connection, asks for the path, and notes how that went. It
// returns nil if there was no answer.
func (c client) open(ctx context.Context, path string) *talk {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	a := judge.Attempt{Client: c.Client, Time: time.Now()}
	t, err := c.begin(ctx, path, &a)
	a.Took = time.Since(a.Time)
	if err != nil {
		a.Error = err.Error()
	} else {
		a.Stage = ""
	}
	c.notes.write(judge.Line{Attempt: &a})
	return t
}

// begin leaves in the attempt how far it came.
func (c client) begin(ctx context.Context, path string, a *judge.Attempt) (*talk, error) {
	request, config, err := c.prepare(path)
	if err != nil {
		return nil, err
	}
	a.Stage = judge.StageDNS
	address, err := c.resolve(ctx)
	if err != nil {
		return nil, err
	}
	a.Stage = judge.StageConnect
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address.String())
	if err != nil {
		return nil, err
	}
	t, err := c.shake(ctx, raw, request, config, a)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return t, nil
}

func (c client) shake(ctx context.Context, raw net.Conn, request *http.Request, config *tls.Config, a *judge.Attempt) (*talk, error) {
	a.Stage = judge.StageTLS
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	a.Stage = judge.StageRequest
	a.Server = conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return nil, err
	}
	a.Status = response.StatusCode
	return &talk{conn, a.Server, response}, nil
}

// prepare reads the token each time, since it is replaced from time to time.
func (c client) prepare(path string) (*http.Request, *tls.Config, error) {
	token, err := os.ReadFile(filepath.Join(c.account, "token"))
	if err != nil {
		return nil, nil, err
	}
	ca, err := os.ReadFile(filepath.Join(c.account, "ca.crt"))
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, nil, errors.New("the pod's ca.crt holds no certificate")
	}
	request, err := http.NewRequest(http.MethodGet, c.base.String()+path, nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	return request, &tls.Config{RootCAs: pool, ServerName: c.base.Hostname()}, nil
}

// resolve asks the cluster's DNS unless the target is an address.
func (c client) resolve(ctx context.Context) (netip.AddrPort, error) {
	port, err := strconv.ParseUint(c.base.Port(), 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s names no port: %w", c.Target, err)
	}
	if addr, err := netip.ParseAddr(c.base.Hostname()); err == nil {
		return netip.AddrPortFrom(addr, uint16(port)), nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", c.base.Hostname())
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(found) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%s has no address", c.base.Hostname())
	}
	return netip.AddrPortFrom(found[0].Unmap(), uint16(port)), nil
}
