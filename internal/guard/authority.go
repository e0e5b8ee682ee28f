// SPDX-License-Identifier: Apache-2.0

package guard

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
	"time"
)

// validity is how long a guard's certificate is good. Its end is a metric,
// since a guard that nobody can verify is not asked any more.
const validity = 3 * 365 * 24 * time.Hour

// pair is a serving certificate as PEM, with the authority that vouches for it
// and for nothing else: its key is forgotten.
type pair struct{ authority, certificate, key []byte }

// newPair makes a certificate for a host: a name or an address.
func newPair(host string, now time.Time) (pair, error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("making a key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("making a key: %w", err)
	}
	authority, err := unsigned("fairlead guard's authority", now)
	if err != nil {
		return pair{}, err
	}
	authority.IsCA, authority.BasicConstraintsValid, authority.MaxPathLenZero = true, true, true
	authority.KeyUsage = x509.KeyUsageCertSign
	serving, err := unsigned("fairlead guard", now)
	if err != nil {
		return pair{}, err
	}
	serving.KeyUsage, serving.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if address := net.ParseIP(host); address != nil {
		serving.IPAddresses = []net.IP{address}
	} else {
		serving.DNSNames = []string{host}
	}
	own, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return pair{}, fmt.Errorf("signing the authority's certificate: %w", err)
	}
	signed, err := x509.CreateCertificate(rand.Reader, serving, authority, key.Public(), authorityKey)
	if err != nil {
		return pair{}, fmt.Errorf("signing the certificate of %s: %w", host, err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("writing the key of %s: %w", host, err)
	}
	return pair{asPEM("CERTIFICATE", own), asPEM("CERTIFICATE", signed), asPEM("PRIVATE KEY", text)}, nil
}

func unsigned(name string, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
	}, nil
}

func asPEM(kind string, content []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
}
