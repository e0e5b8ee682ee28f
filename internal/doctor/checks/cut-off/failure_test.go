// SPDX-License-Identifier: Apache-2.0

package cutoff

import "testing"

func TestFailure(t *testing.T) {
	for name, tt := range map[string]struct{ line, address, problem string }{
		"connect() that a program refuses":      {`Get \"https://10.15.1.8:443/version\": dial tcp 10.15.1.8:443: connect: operation not permitted`, "10.15.1.8:443", notPermitted},
		"a port at which nobody listens":        {`dial tcp [fd00::1]:443: connect: connection refused`, "[fd00::1]:443", "connection refused"},
		"a connection that ran out of time":     {`panic: Get "https://10.254.0.1:443/api?timeout=32s": dial tcp 10.254.0.1:443: i/o timeout`, "10.254.0.1:443", "i/o timeout"},
		"a certificate that nobody vouches for": {`Get \"https://10.15.1.8:443/api/v1/nodes\": tls: failed to verify certificate: x509: certificate signed by unknown authority"`, "10.15.1.8:443", "x509: certificate signed by unknown authority"},
		"a handshake that takes too long":       {`Get "https://10.254.0.1:443/api/v1/pods": net/http: TLS handshake timeout`, "10.254.0.1:443", "net/http: TLS handshake timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			address, problem, found := Failure(tt.line)
			if !found || address != tt.address || problem != tt.problem {
				t.Errorf("%v %q %q", found, address, problem)
			}
		})
	}
	for name, line := range map[string]string{
		"an answer that says no":       `Get "https://10.254.0.1:443/api/v1/pods": Forbidden`,
		"a name that is not found":     `dial tcp: lookup kubernetes.default.svc on 10.254.0.10:53: no such host`,
		"a connection that came about": `connected to 10.254.0.1:443`,
	} {
		t.Run(name+" is none", func(t *testing.T) {
			if address, problem, found := Failure(line); found {
				t.Errorf("%q %q", address, problem)
			}
		})
	}
}

func FuzzFailure(f *testing.F) {
	f.Add(`Get \"https://10.15.1.8:443/version\": dial tcp 10.15.1.8:443: connect: operation not permitted`)
	f.Add(`Get "https://10.254.0.1:443/api/v1/pods": net/http: TLS handshake timeout`)
	f.Fuzz(func(t *testing.T, line string) {
		if address, problem, found := Failure(line); found && (address == "" || problem == "") {
			t.Errorf("%q: %q %q", line, address, problem)
		}
	})
}
