// SPDX-License-Identifier: Apache-2.0

package main

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
)

// user is somebody who may talk to the API server by a static token.
type user struct {
	name, group, token string
}

func newUser(name, group string) user { return user{name, group, rand.Text()} }

// writeTokens writes the API server's list of users.
func writeTokens(path string, users []user) error {
	var text strings.Builder
	for _, u := range users {
		fmt.Fprintf(&text, "%s,%s,%s,%s\n", u.token, u.name, u.name, u.group)
	}
	return os.WriteFile(path, []byte(text.String()), 0o600)
}

// writeCertificates writes a certificate for each server, which vouches for
// itself, and one file with all of them for clients to trust. The servers have
// one key, which signs the tokens of service accounts, too.
func writeCertificates(servers []string, certPath func(server string) string, bundlePath, keyPath string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(keyPath, "EC PRIVATE KEY", private); err != nil {
		return err
	}
	var bundle []byte
	for _, server := range servers {
		cert, err := newCertificate(server, key)
		if err != nil {
			return err
		}
		if err := writePEM(certPath(server), "CERTIFICATE", cert); err != nil {
			return err
		}
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})...)
	}
	return os.WriteFile(bundlePath, bundle, 0o600)
}

// newCertificate makes a certificate with the server's own name, and with every
// name by which clients call the API server.
func newCertificate(server string, key *ecdsa.PrivateKey) ([]byte, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: server},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(7 * 24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{server, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses:           []net.IP{net.ParseIP(controlIP), net.ParseIP(apiServiceIP), net.ParseIP(intranetIP)},
	}
	return x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}
