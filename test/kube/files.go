// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The users of a cluster. Limited may do what every authenticated user may,
// which is next to nothing; a test gives it roles by this name.
const (
	admin   = "admin"
	Limited = "limited"
)

// The files of a cluster. All servers share them but the certificate.
const (
	caFile          = "ca.crt"
	certFile        = "server.crt"
	keyFile         = "server.key"
	tokenFile       = "tokens.csv"
	auditPolicyFile = "audit-policy.yaml"
)

// auditWrites keeps every write with its object, once it is done, and leaves
// out what servers write only to say that they are alive.
const auditWrites = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources: [{group: coordination.k8s.io}]
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// auditEverything keeps every request once it is answered, and a watch when it
// begins.
const auditEverything = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func (c *Cluster) writeFiles() error {
	if err := c.writeCertificates(); err != nil {
		return err
	}
	c.tokens = map[string]string{admin: rand.Text(), Limited: rand.Text()}
	// The columns are token, user, uid and groups.
	tokens := fmt.Sprintf("%s,%s,%s,system:masters\n%s,%s,%s\n",
		c.tokens[admin], admin, admin, c.tokens[Limited], Limited, Limited)
	if err := os.WriteFile(c.file(tokenFile), []byte(tokens), 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.file(auditPolicyFile), []byte(c.audit), 0o600)
}

// writeCertificates writes the certificate that vouches for those of the
// servers, and the key of all of them. It signs service account tokens as well.
func (c *Cluster) writeCertificates() (err error) {
	if c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	c.ca = certificate("test")
	c.ca.KeyUsage, c.ca.IsCA, c.ca.BasicConstraintsValid = x509.KeyUsageCertSign, true, true
	if err := c.writeSigned(c.file(caFile), c.ca); err != nil {
		return err
	}
	key, err := x509.MarshalECPrivateKey(c.key)
	if err != nil {
		return err
	}
	return writePEM(c.file(keyFile), "EC PRIVATE KEY", key)
}

// writeCertificate writes the server's certificate, with its own name and every
// name by which clients call the servers.
func (a *APIServer) writeCertificate() error {
	c := a.cluster
	template := certificate(a.name)
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{a.name,
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	template.IPAddresses = []net.IP{c.bind.AsSlice(), c.advertise.AsSlice(), net.ParseIP(apiServiceIP)}
	return c.writeSigned(a.file(certFile), template)
}

func certificate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}
}

func (c *Cluster) writeSigned(path string, template *x509.Certificate) error {
	cert, err := x509.CreateCertificate(rand.Reader, template, c.ca, c.key.Public(), c.key)
	if err != nil {
		return err
	}
	return writePEM(path, "CERTIFICATE", cert)
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}

// AccountKubeconfig writes the kubeconfig of a service account, with a token of
// its own, and returns its path.
func (a *APIServer) AccountKubeconfig(namespace, account string) string {
	t := a.cluster.t
	t.Helper()
	user := "system:serviceaccount:" + namespace + ":" + account
	a.cluster.tokens[user] = strings.TrimSpace(a.Kubectl("--namespace", namespace, "create", "token", account))
	path, err := a.writeKubeconfig(user)
	if err != nil {
		t.Fatalf("write the kubeconfig of %s: %v", user, err)
	}
	return path
}

func (a *APIServer) writeKubeconfig(user string) (path string, err error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: a.URL, CertificateAuthority: a.CAFile}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: a.cluster.tokens[user]}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: user}
	config.CurrentContext = "test"
	path = a.file(user + ".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}
