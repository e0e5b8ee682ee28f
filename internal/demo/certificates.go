// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"time"
)

// apiName is a name that the certificate of every API server has.
const apiName = "kubernetes.default.svc"

// authority signs the API servers' certificates. All have its key, which signs
// the tokens of service accounts as well.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(certFile, keyFile string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	a := &authority{key: key, cert: certificate("demo"), pool: x509.NewCertPool()}
	a.cert.KeyUsage, a.cert.IsCA, a.cert.BasicConstraintsValid = x509.KeyUsageCertSign, true, true
	if err := a.sign(a.cert, certFile); err != nil {
		return nil, err
	}
	a.pool.AddCert(a.cert)
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a key: %w", err)
	}
	return a, writePEM(keyFile, "EC PRIVATE KEY", text)
}

// issue writes the certificate of an API server, which has a name of its own
// besides those that all have.
func (a *authority) issue(file, name string, addresses ...netip.Addr) error {
	c := certificate(name)
	c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	c.DNSNames = []string{name, apiName}
	for _, each := range addresses {
		c.IPAddresses = append(c.IPAddresses, net.IP(each.AsSlice()))
	}
	return a.sign(c, file)
}

// sign completes a certificate, and writes it to a file.
func (a *authority) sign(c *x509.Certificate, file string) error {
	text, err := x509.CreateCertificate(rand.Reader, c, a.cert, a.key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", c.Subject.CommonName, err)
	}
	signed, err := x509.ParseCertificate(text)
	if err != nil {
		return fmt.Errorf("read the certificate of %s: %w", c.Subject.CommonName, err)
	}
	*c = *signed
	return writePEM(file, "CERTIFICATE", text)
}

// trust is how clients verify that they talk to the server of that name.
func (a *authority) trust(name string) *tls.Config {
	return &tls.Config{RootCAs: a.pool, ServerName: name, MinVersion: tls.VersionTLS12}
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

func writePEM(file, kind string, content []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}
