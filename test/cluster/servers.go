// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// controlAddress is where the API server is, past every Service.
const controlAddress = controlIP + ":6443"

// The addresses of etcd.
const (
	etcdClient = "http://127.0.0.1:2379"
	etcdPeer   = "http://127.0.0.1:2380"
)

// apiServer is one kube-apiserver. Its name is in its certificate, which tells
// those that share an address from each other.
type apiServer struct {
	name string
	*task
}

// serverNames are those of the API servers that run at once.
func (o options) serverNames() []string {
	if o.replay.on {
		return []string{"kube-apiserver", "kube-apiserver-2"}
	}
	return []string{"kube-apiserver"}
}

// startAPI starts etcd and the API servers, with what every cluster has.
func (c *controller) startAPI(ctx context.Context) error {
	if err := c.startEtcd(); err != nil {
		return err
	}
	if err := c.writeCredentials(); err != nil {
		return err
	}
	for _, name := range c.serverNames() {
		server := &apiServer{name: name}
		c.servers = append(c.servers, server)
		if err := c.startServer(ctx, server); err != nil {
			return err
		}
	}
	return nil
}

func (c *controller) startEtcd() error {
	data := c.run("etcd")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	// Nothing has to survive, so nothing has to wait for a disk.
	if err := unix.Mount("tmpfs", data, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount a tmpfs for etcd: %w", err)
	}
	return c.start("etcd", c.program("etcd"), "--data-dir="+filepath.Join(data, "data"), "--unsafe-no-fsync",
		"--listen-client-urls="+etcdClient, "--advertise-client-urls="+etcdClient,
		"--listen-peer-urls="+etcdPeer, "--initial-advertise-peer-urls="+etcdPeer, "--initial-cluster=default="+etcdPeer)
}

// startServer starts an API server, where it was before if it was, and waits
// until it is ready.
func (c *controller) startServer(ctx context.Context, server *apiServer) (err error) {
	server.task, err = c.startTask(server.name, c.program("kube-apiserver"),
		"--etcd-servers="+etcdClient, "--bind-address="+controlIP, "--secure-port=6443", "--advertise-address="+controlIP,
		"--permit-port-sharing="+strconv.FormatBool(len(c.serverNames()) > 1),
		"--tls-cert-file="+c.serverCertificate(server.name), "--tls-private-key-file="+c.key(), "--token-auth-file="+c.run("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--service-cluster-ip-range="+serviceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.key(), "--service-account-signing-key-file="+c.key(),
		"--kubelet-preferred-address-types=InternalIP")
	if err != nil {
		return err
	}
	return eventually(ctx, apiTimeout, server.name+" is ready", func(ctx context.Context) error {
		_, err := c.kubectl(ctx, nil, "--tls-server-name="+server.name, "get", "--raw=/readyz")
		return err
	})
}

func (c *controller) certificate() string { return c.run("servers.crt") }
func (c *controller) key() string         { return c.run("server.key") }

func (c *controller) serverCertificate(server string) string { return c.run(server + ".crt") }

func (c *controller) writeCredentials() error {
	users := []user{c.admin, c.kubeProxy}
	for _, m := range machines() {
		users = append(users, newUser(nodeUser(m), "system:nodes"))
	}
	if err := writeTokens(c.run("tokens.csv"), users); err != nil {
		return err
	}
	for _, u := range users {
		if err := c.writeKubeconfig(u); err != nil {
			return err
		}
	}
	return writeCertificates(c.serverNames(), c.serverCertificate, c.certificate(), c.key())
}

func (c *controller) kubeconfig(user string) string { return c.run(user + ".kubeconfig") }

func (c *controller) writeKubeconfig(u user) error {
	return renderTo(c.kubeconfig(u.name), "kubeconfig", map[string]string{
		"Server": c.serverAddress(u.name), "Certificate": c.certificate(), "Token": u.token,
	})
}

// serverAddress is where a user is told that the API server is.
func (o options) serverAddress(user string) string {
	if address, ok := kubeletServers()[user]; ok && o.replay.on {
		return address
	}
	return controlAddress
}
