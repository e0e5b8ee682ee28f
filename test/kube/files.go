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

// The files that the servers of a cluster share.
const (
	caFile          = "ca.crt"
	certFile        = "server.crt"
	keyFile         = "server.key"
	tokenFile       = "tokens.csv"
	auditPolicyFile = "audit-policy.yaml"
)

// auditPolicy keeps every write with its object, once it is done, and leaves
// out what servers write only to say that they are alive.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources: [{group: coordination.k8s.io}]
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
- level: None
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
	return os.WriteFile(c.file(auditPolicyFile), []byte(auditPolicy), 0o600)
}

// writeCertificates writes one certificate that vouches for itself, with every
// name by which clients call the servers, and its key. The key signs service
// account tokens as well.
func (c *Cluster) writeCertificates() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		},
		IPAddresses: []net.IP{c.bind.AsSlice(), c.advertise.AsSlice(), net.ParseIP(apiServiceIP)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	keyBytes, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		caFile:   {Type: "CERTIFICATE", Bytes: cert},
		certFile: {Type: "CERTIFICATE", Bytes: cert},
		keyFile:  {Type: "EC PRIVATE KEY", Bytes: keyBytes},
	} {
		if err := os.WriteFile(c.file(name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
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
