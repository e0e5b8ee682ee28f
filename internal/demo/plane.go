// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netns"
)

// The users of the API. The agent's has the rights of deploy/rbac.yaml alone.
const (
	admin        = "admin"
	agentUser    = "fairlead"
	recorderUser = "fairlead-recorder"
)

// plane is a control plane in a namespace of its own: an etcd, and API servers
// that all listen at one address and port, to which the kernel brings each
// connection as a cloud's load balancer does.
type plane struct {
	bin, work string
	keep      string // the folder of audit logs; none are written if empty
	at        netip.AddrPort
	services  string         // the range of ClusterIPs
	names     []netip.Addr   // by which clients call the servers
	ns        netns.NsHandle // where all of it runs
	authority *authority
	tokens    map[string]string
	etcd      string // its URL
	replicas  int    // started so far
}

// replica is one API server.
type replica struct {
	*program
	name string
}

// start starts etcd and writes what the servers share.
func (p *plane) start() (err error) {
	// What a server that stops has not accepted yet is left to the others.
	migrate := func() { err = os.WriteFile("/proc/sys/net/ipv4/tcp_migrate_req", []byte("1"), 0) }
	if entered := do(p.ns, migrate); entered != nil {
		return entered
	}
	if err != nil {
		return fmt.Errorf("prepare the control plane: %w", err)
	}
	if p.authority, err = newAuthority(p.file("ca.crt"), p.file("server.key")); err != nil {
		return err
	}
	p.tokens = map[string]string{admin: rand.Text(), agentUser: rand.Text(), recorderUser: rand.Text()}
	tokens := fmt.Sprintf("%s,%s,%[2]s,system:masters\n", p.tokens[admin], admin)
	for _, user := range []string{agentUser, recorderUser} {
		tokens += fmt.Sprintf("%s,%s,%[2]s\n", p.tokens[user], user)
	}
	if err := os.WriteFile(p.file("tokens.csv"), []byte(tokens), 0o600); err != nil {
		return fmt.Errorf("write the tokens: %w", err)
	}
	p.etcd = "http://127.0.0.1:2379"
	_, err = p.run("etcd", "etcd", "--data-dir="+p.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+p.etcd, "--advertise-client-urls="+p.etcd,
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380")
	return err
}

func (p *plane) file(name string) string { return filepath.Join(p.work, name) }

// run starts a component, which writes to the log of that name.
func (p *plane) run(name, component string, args ...string) (*program, error) {
	log, err := os.Create(p.file(name + ".log"))
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(p.bin, component), args...)
	cmd.Stdout, cmd.Stderr = log, log
	// The machine's name is part of the name of an API server's identity lease.
	return startIn(p.ns, name, cmd)
}

// A server that shares its port may have its connections to itself brought to
// another one, and then waits for what never comes, for a minute. As a kubelet
// does, the demo starts it again: one takes some four seconds where nothing else
// is done, and ten times that on a busy machine.
const (
	startTimeout = 30 * time.Second
	starts       = 4
)

// add starts one more API server, and returns when it is ready and stands in
// default/kubernetes.
func (p *plane) add(ctx context.Context) (*replica, error) {
	p.replicas++
	r := &replica{name: fmt.Sprintf("kube-apiserver-%d", p.replicas)}
	if err := p.authority.issue(p.file(r.name+".crt"), r.name, append(p.names, p.at.Addr())...); err != nil {
		return nil, err
	}
	var err error
	for range starts {
		if err = p.launch(ctx, r); err == nil || ctx.Err() != nil {
			break
		}
	}
	return r, err
}

// launch starts a server, and ends it if it is not ready in time.
func (p *plane) launch(ctx context.Context, r *replica) (err error) {
	r.program, err = p.run(r.name, "kube-apiserver", append(p.auditFlags(r.name),
		"--etcd-servers="+p.etcd,
		"--bind-address="+p.at.Addr().String(), "--advertise-address="+p.at.Addr().String(),
		"--secure-port="+fmt.Sprint(p.at.Port()), "--permit-port-sharing",
		"--tls-cert-file="+p.file(r.name+".crt"), "--tls-private-key-file="+p.file("server.key"),
		"--token-auth-file="+p.file("tokens.csv"), "--anonymous-auth=false", "--authorization-mode=RBAC",
		"--service-account-issuer=https://"+apiName,
		"--service-account-key-file="+p.file("server.key"), "--service-account-signing-key-file="+p.file("server.key"),
		"--service-cluster-ip-range="+p.services,
		"--disable-admission-plugins=ServiceAccount", "--profiling=false")...)
	if err != nil {
		return err
	}
	err = p.wait(ctx, r)
	if err != nil {
		_ = r.cmd.Process.Kill() // it may have ended by itself
		<-r.done
	}
	return err
}

// wait asks until the server that was started answers, and not another one at
// its address.
func (p *plane) wait(ctx context.Context, r *replica) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := p.ready(ctx, r)
		if err == nil {
			return nil
		}
		select {
		case <-r.done:
			return fmt.Errorf("%s ended at its start: %w; its log:\n%s", r.name, r.err, p.logTail(r.name))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", r.name, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *plane) logTail(name string) string {
	log, _ := os.ReadFile(p.file(name + ".log")) // an empty one says nothing either
	return string(log[max(0, len(log)-2000):])
}

// ready asks the server itself. One that starts takes out the lease that all
// share, and stands in default/kubernetes once it has renewed it.
func (p *plane) ready(ctx context.Context, r *replica) error {
	client := p.client(r.name)
	if _, err := p.get(ctx, client, "/readyz"); err != nil {
		return err
	}
	if _, err := p.get(ctx, client, "/api/v1/namespaces/default/services/kubernetes"); err != nil {
		return err
	}
	return p.leased(ctx)
}

// leased says whether some server has noted in etcd that it serves.
func (p *plane) leased(ctx context.Context) error {
	key := base64.StdEncoding.EncodeToString([]byte("/registry/masterleases/" + p.at.Addr().String()))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.etcd+"/v3/kv/range",
		strings.NewReader(`{"key":"`+key+`","count_only":true}`))
	if err != nil {
		return err
	}
	answer, err := fetch(p.client(apiName), request)
	if err != nil {
		return err
	}
	var found struct{ Count string }
	if err := json.Unmarshal(answer, &found); err != nil {
		return fmt.Errorf("ask etcd for the servers' lease: %w", err)
	}
	if found.Count != "1" {
		return errors.New("no API server has a lease")
	}
	return nil
}

// client asks from within the control plane, by connections of their own, the
// server that has this name.
func (p *plane) client(name string) *http.Client {
	return &http.Client{Timeout: dialTimeout, Transport: &http.Transport{
		DialContext: dialIn(p.ns, "control-plane"), TLSClientConfig: p.authority.trust(name), DisableKeepAlives: true,
	}}
}

func (p *plane) get(ctx context.Context, client *http.Client, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.at.String()+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+p.tokens[admin])
	return fetch(client, request)
}

func fetch(client *http.Client, request *http.Request) ([]byte, error) {
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s", response.Status)
	}
	return body, err
}

// endpoints counts those of default/kubernetes, as the API has them.
func (p *plane) endpoints(ctx context.Context) (int, error) {
	answer, err := p.get(ctx, p.client(apiName), "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
	if err != nil {
		return 0, err
	}
	var slice struct{ Endpoints []json.RawMessage }
	if err := json.Unmarshal(answer, &slice); err != nil {
		return 0, fmt.Errorf("read the EndpointSlice of default/kubernetes: %w", err)
	}
	return len(slice.Endpoints), nil
}

// stop asks the server to end. It closes its listener, and goes on with those
// that are connected.
func (r *replica) stop() error { return r.cmd.Process.Signal(syscall.SIGTERM) }

// kubeconfig writes one of a user, with the API server at an address.
func (p *plane) kubeconfig(user, server string) (file string, err error) {
	file = p.file(user + ".kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: demo
clusters: [{name: demo, cluster: {server: "https://%s", certificate-authority: %s}}]
users: [{name: %s, user: {token: %s}}]
contexts: [{name: demo, context: {cluster: demo, user: %[3]s}}]
`, server, p.file("ca.crt"), user, p.tokens[user])
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// kubectl runs the program in the control plane, as its administrator, and
// returns what it printed.
func (p *plane) kubectl(input string, args ...string) (string, error) {
	var out, errOut bytes.Buffer
	config, err := p.kubeconfig(admin, p.at.String())
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(p.bin, "kubectl"),
		append([]string{"--kubeconfig=" + config, "--cache-dir=" + p.file("kubectl-cache")}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errOut
	kubectl, err := startIn(p.ns, "", cmd)
	if err != nil {
		return "", err
	}
	<-kubectl.done
	if kubectl.err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), kubectl.err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}
