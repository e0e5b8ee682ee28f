// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/cluster/judge"
)

func TestAClientNotesHowFarItCame(t *testing.T) {
	for name, c := range map[string]struct {
		server func(http.ResponseWriter, *http.Request)
		spoil  func(t *testing.T, account string, server *httptest.Server)
		want   judge.Attempt
	}{
		"to an answer": {
			server: func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != askPath {
					w.WriteHeader(http.StatusUnauthorized)
				}
			},
			want: judge.Attempt{Server: "kube-apiserver", Status: 200},
		},
		"to an answer that helps nobody": {
			server: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
			want:   judge.Attempt{Server: "kube-apiserver", Status: 503},
		},
		"to a server that closes the connection": {
			server: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			want:   judge.Attempt{Server: "kube-apiserver", Stage: judge.StageRequest},
		},
		"to somebody else": {
			spoil: func(t *testing.T, account string, _ *httptest.Server) {
				_, cert := newTestCertificate(t)
				writeTestFile(t, filepath.Join(account, "ca.crt"), cert)
			},
			want: judge.Attempt{Stage: judge.StageTLS},
		},
		"to nobody": {
			spoil: func(_ *testing.T, _ string, server *httptest.Server) { server.Close() },
			want:  judge.Attempt{Stage: judge.StageConnect},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, notes, server := newTestClient(t, c.server)
			if c.spoil != nil {
				c.spoil(t, client.account, server)
			}
			client.ask(t.Context())
			lines, err := judge.ReadLines(notes)
			if err != nil || len(lines) != 1 || lines[0].Attempt == nil {
				t.Fatalf("noted %v, %v; want one attempt", lines, err)
			}
			got := *lines[0].Attempt
			if (got.Error == "") != (c.want.Status != 0) {
				t.Errorf("the error is %q", got.Error)
			}
			if got.Client != client.Client || got.Took <= 0 || time.Since(got.Time) < got.Took {
				t.Errorf("who and when: %+v", got)
			}
			if got.Server != c.want.Server || got.Status != c.want.Status || got.Stage != c.want.Stage {
				t.Errorf("noted %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAClientNotesHowAWatchEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(http.ResponseWriter)
		clean bool
	}{
		"as agreed":           {func(http.ResponseWriter) {}, true},
		"cut between events":  {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, false},
		"cut within an event": {func(w http.ResponseWriter) { fmt.Fprint(w, `{"type":`) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			client, notes, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
				for range 2 {
					fmt.Fprintln(w, `{"type":"MODIFIED"}`)
				}
				w.(http.Flusher).Flush()
				c.end(w)
			})
			client.watch(t.Context())
			lines, err := judge.ReadLines(notes)
			if err != nil || len(lines) != 2 || lines[1].Watch == nil {
				t.Fatalf("noted %v, %v; want an attempt and a watch", lines, err)
			}
			got := *lines[1].Watch
			if got.Events != 2 || got.Server != "kube-apiserver" || got.Ended.Before(got.Opened) || got.Client != client.Client {
				t.Errorf("noted %+v, want two events", got)
			}
			if (got.Error == "") != c.clean {
				t.Errorf("the end reads %q", got.Error)
			}
		})
	}
}

// newTestClient returns a client of a server, and what it will have noted.
func newTestClient(t *testing.T, answer http.HandlerFunc) (client, *bytes.Buffer, *httptest.Server) {
	t.Helper()
	key, cert := newTestCertificate(t)
	server := httptest.NewUnstartedServer(answer)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)

	account := t.TempDir()
	writeTestFile(t, filepath.Join(account, "ca.crt"), cert)
	if err := os.WriteFile(filepath.Join(account, "token"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var notes bytes.Buffer
	name := judge.Client{Name: "n1", Target: server.URL}
	return client{name, base, account, &notebook{encoder: json.NewEncoder(&notes)}}, &notes, server
}

func newTestCertificate(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

func writeTestFile(t *testing.T, path string, cert []byte) {
	t.Helper()
	if err := writePEM(path, "CERTIFICATE", cert); err != nil {
		t.Fatal(err)
	}
}
