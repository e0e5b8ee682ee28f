// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

var update = flag.Bool("update", false, "write the golden file anew")

// exact compares all fields, those of package net/netip included.
var exact = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// some is a content with a value in every field.
func some() Content {
	at := time.Date(2026, 11, 20, 10, 0, 0, 123456789, time.UTC)
	name := model.Name{Namespace: "default", Name: "kubernetes-intranet"}
	backend := netip.MustParseAddrPort("169.254.128.7:60002")
	return Content{
		Saved:     at,
		Endpoints: []netip.AddrPort{backend, netip.MustParseAddrPort("[2001:db8::7]:6443")},
		Memory: tables.Memory{Services: []tables.RememberedService{{
			Object: &model.Service{
				Name: name, ResourceVersion: "4711", CreationTimestamp: at.Add(-time.Hour),
				ProxyName: model.DefaultProxyName, HasProxyName: true,
				Type:       model.ServiceLoadBalancer,
				ClusterIPs: []netip.Addr{netip.MustParseAddr("192.168.60.179")}, ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.80")},
				LoadBalancerIngress:   []model.LoadBalancerIngress{{Address: netip.MustParseAddr("10.15.1.8"), Proxy: true}},
				SourceRanges:          []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
				Ports:                 []model.ServicePort{{Name: "https", Protocol: model.TCP, Port: 443, NodePort: 30965}},
				ExternalTrafficPolicy: model.PolicyLocal, InternalTrafficPolicy: model.PolicyCluster,
				HealthCheckNodePort: 31000, AffinitySeconds: 10800, Selection: model.SelectionMaglev, HasSelection: true,
			},
			Sets: []tables.RememberedSet{{
				PortName: "https", Protocol: model.TCP, Family: model.IPv4, Role: model.RoleVIPInternal,
				Backends: []model.Backend{{
					AddrPort: backend, State: model.StateTerminating, Local: true, Node: "n1",
					Slices: []model.Name{{Namespace: "default", Name: "kubernetes-intranet-qxgk4"}},
				}},
				Emptied: at.Add(-time.Minute), Ended: tables.EndedReleased,
			}},
		}}},
	}
}

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "on the way", "state.json")
	for _, want := range []Content{some(), {}, {Saved: time.Unix(1, 0).UTC(), Endpoints: some().Endpoints}} {
		if err := Write(path, want); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, exact); diff != "" {
			t.Errorf("(-written +read)\n%s", diff)
		}
	}
}

// The file outlives the agent that wrote it: if this test fails, the shape has
// changed, and the number of the format must, too.
func TestTheFormatIsThatOfTheGoldenFile(t *testing.T) {
	text, err := encode(some())
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", fmt.Sprintf("format-%d.json", format))
	if *update {
		if err := os.WriteFile(golden, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("(-golden +now)\n%s", diff)
	}
	got, err := Read(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(some(), got, exact); diff != "" {
		t.Errorf("(-want +read from the golden file)\n%s", diff)
	}
}

func TestTheFileAndItsFolderAreForTheirOwnerOnly(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	folder := filepath.Join(t.TempDir(), "fairlead")
	path := filepath.Join(folder, "state.json")
	for range 2 {
		if err := Write(path, some()); err != nil {
			t.Fatal(err)
		}
	}
	for at, want := range map[string]fs.FileMode{path: 0o600, folder: 0o700 | fs.ModeDir} {
		info, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %s, want %s", at, info.Mode(), want)
		}
	}
}

// sealed is a file with this content and its right checksum.
func sealed(content string) string {
	return fmt.Sprintf(`{"format":%d,"checksum":%q,"content":%s}`, format, checksum([]byte(content)), content)
}

// with is the content that some() becomes by a replacement in its JSON.
func with(t *testing.T, old, new string) string {
	t.Helper()
	text, err := json.Marshal(some())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("there is no %s in %s", old, text)
	}
	return strings.Replace(string(text), old, new, 1)
}

func TestAFileThatIsNotWholeIsOneClearError(t *testing.T) {
	whole, err := encode(some())
	if err != nil {
		t.Fatal(err)
	}
	replaced := func(old, new string) string { return strings.Replace(string(whole), old, new, 1) }
	for name, test := range map[string]struct{ text, want string }{
		"an empty file":                  {"", "it is empty"},
		"a file cut short":               {string(whole[:len(whole)/2]), "it is damaged: unexpected end of JSON input"},
		"zeros, as after a power cut":    {strings.Repeat("\x00", 4096), "it is damaged: invalid character"},
		"two files in one":               {string(whole) + string(whole), "it is damaged: invalid character"},
		"a byte that changed":            {replaced("60002", "60003"), "the checksum is not that of the content"},
		"a checksum that is missing":     {replaced("checksum", "sum"), "the checksum is not that of the content"},
		"a newer format":                 {`{"format":2,"content":[1]}`, "it has format 2, and this version reads format 1 only"},
		"an older format":                {`{"format":0,"checksum":7}`, "it has format 0, and this version reads format 1 only"},
		"no format":                      {`{}`, "it has format 0"},
		"no object":                      {`[]`, "it is damaged"},
		"too large":                      {strings.Repeat(" ", maxSize) + string(whole), fmt.Sprintf("it is larger than %d bytes", maxSize)},
		"no content":                     {sealed(`{`)[:0] + fmt.Sprintf(`{"format":1,"checksum":%q}`, checksum(nil)), "it is damaged: unexpected end"},
		"content of another type":        {sealed(`[]`), "it is damaged: json: cannot unmarshal array"},
		"a Service without an object":    {sealed(`{"memory":{"services":[{"object":null}]}}`), "memory.services[0]: the Service is missing"},
		"a Service without a name":       {sealed(`{"memory":{"services":[{"object":{"Namespace":"a"}}]}}`), "memory.services[0]: the Service is missing, or its name"},
		"a type that is none":            {sealed(with(t, `"Type":2`, `"Type":9`)), "9 is no type of a Service"},
		"a policy that is none":          {sealed(with(t, `"ExternalTrafficPolicy":1`, `"ExternalTrafficPolicy":2`)), "neither Cluster nor Local"},
		"a selection that is none":       {sealed(with(t, `"maglev"`, `"best"`)), "none of random, maglev"},
		"a protocol that is none":        {sealed(with(t, `"protocol":6`, `"protocol":1`)), "sets[0]: 1 is the number of none of TCP, UDP, SCTP"},
		"a Service port without number":  {sealed(with(t, `"Port":443`, `"Port":0`)), "a port has no number"},
		"a clusterIP of two families":    {sealed(with(t, `"192.168.60.179"`, `"::ffff:10.0.0.1"`)), "::ffff:10.0.0.1 is not the address of a Service"},
		"a source range with host bits":  {sealed(with(t, `"10.0.0.0/8"`, `"10.0.0.1/8"`)), "10.0.0.1/8 is not a source range"},
		"a family that is none":          {sealed(with(t, `"family":4`, `"family":5`)), "5 is no IP family"},
		"a backend of another family":    {sealed(with(t, `"family":4`, `"family":6`)), "169.254.128.7:60002 is not an IPv6 backend"},
		"a role that is none":            {sealed(with(t, `"role":4`, `"role":5`)), "5 is no role"},
		"a state that is none":           {sealed(with(t, `"State":1`, `"State":4`)), "4 is no state"},
		"an ending that is none":         {sealed(with(t, `"ended":"released"`, `"ended":"x"`)), `"x" is no ending`},
		"a backend at no address":        {sealed(with(t, `"AddrPort":"169.254.128.7:60002"`, `"AddrPort":""`)), "is not an IPv4 backend"},
		"an endpoint that is everywhere": {sealed(with(t, `"endpoints":["169.254.128.7:60002"`, `"endpoints":["0.0.0.0:60002"`)), "endpoints[0]: 0.0.0.0:60002"},
		"an endpoint without a port":     {sealed(with(t, `"endpoints":["169.254.128.7:60002"`, `"endpoints":["169.254.128.7:0"`)), "endpoints[0]: 169.254.128.7:0"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.json")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			wantError(t, path, test.want)
		})
	}
}

// wantError reads a file, which must fail in one line that names the file.
func wantError(t *testing.T, path, want string) {
	t.Helper()
	c, err := Read(path)
	if err == nil {
		t.Fatalf("no error, but %+v", c)
	}
	if text := err.Error(); !strings.HasPrefix(text, "read the state file "+path+": ") || !strings.Contains(text, want) || strings.Contains(text, "\n") {
		t.Errorf("got %q, want one line with %q", text, want)
	}
	if diff := cmp.Diff(Content{}, c, exact); diff != "" {
		t.Errorf("something of it was returned: %s", diff)
	}
}

func TestWhatIsNoFileIsNeitherReadNorReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		make func(path string) error
		want string
	}{
		"a folder": {func(path string) error { return os.Mkdir(path, 0o700) }, "it is a folder"},
		"a link to a file": {func(path string) error {
			return errors.Join(Write(path+".real", some()), os.Symlink(path+".real", path))
		}, "it is a symbolic link"},
		"a link to nothing":        {func(path string) error { return os.Symlink("nothing", path) }, "it is a symbolic link"},
		"a pipe that nobody opens": {func(path string) error { return unix.Mkfifo(path, 0o600) }, "it is no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.json")
			if err := test.make(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, path, test.want)
			if err := Write(path, some()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Write returned %v, want %q", err, test.want)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("it was replaced: %v, %v", after, err)
			}
		})
	}
}

func TestAMissingFileIsErrNotExist(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "state.json"), filepath.Join(t.TempDir(), "no", "state.json")} {
		wantError(t, path, "no such file or directory")
		if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v is not fs.ErrNotExist", err)
		}
	}
}

func TestWithoutPermissionReadAndWriteSaySo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := Write(path, some()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan [2]error)
	go func() {
		// This thread takes another user for the files it opens, and ends with
		// the goroutine, since it stays locked to it.
		runtime.LockOSThread()
		err := unix.Setfsuid(65534)
		_, readErr := Read(path)
		done <- [2]error{errors.Join(err, readErr), errors.Join(err, Write(path, Content{}))}
	}()
	for i, err := range <-done {
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", [...]string{"Read", "Write"}[i], err)
		}
	}
}

func TestContentThatCouldNotBeReadIsNotWritten(t *testing.T) {
	large := some()
	large.Endpoints = make([]netip.AddrPort, 300_000)
	for i := range large.Endpoints {
		large.Endpoints[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 6443)
	}
	for name, test := range map[string]struct {
		content Content
		want    string
	}{
		"more than a file holds": {large, "more than the 4194304 of a file"},
		"no address":             {Content{Endpoints: make([]netip.AddrPort, 1)}, "endpoints[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.json")
			if err := Write(path, some()); err != nil {
				t.Fatal(err)
			}
			if err := Write(path, test.content); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			got, err := Read(path)
			if diff := cmp.Diff(some(), got, exact); diff != "" || err != nil {
				t.Errorf("the old file is gone: %v %s", err, diff)
			}
		})
	}
}

func TestADamagedFileIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, some()); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestAnyFlippedBitIsNoticed(t *testing.T) {
	whole, err := encode(some())
	if err != nil {
		t.Fatal(err)
	}
	end := len(whole) - 1 // the line's end is no part of the file's meaning
	rapid.Check(t, func(t *rapid.T) {
		text := append([]byte(nil), whole...)
		at := rapid.IntRange(0, end-1).Draw(t, "byte")
		text[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		c, err := decode(text)
		// Names of fields are read in either case, so these flips mean nothing.
		if err == nil && !cmp.Equal(c, some(), exact) {
			t.Fatalf("%q is read as %+v", text, c)
		}
	})
}

func FuzzRead(f *testing.F) {
	whole, err := encode(some())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, false)
	f.Add(whole[:100], false)
	f.Add([]byte(`{"saved":"2026-11-20T10:00:00Z","endpoints":["192.0.2.1:6443"],"memory":{"services":[]}}`), true)
	f.Add([]byte(`{"memory":{"services":[{"object":{"Namespace":"a","Name":"b","Ports":[{"Protocol":6,"Port":1}]},"sets":[{"protocol":17,"family":6,"backends":[{"AddrPort":"[fd00::1]:1"}]}]}]}}`), true)
	f.Fuzz(func(t *testing.T, text []byte, content bool) {
		if content {
			text = []byte(sealed(string(text)))
		}
		c, err := decode(text)
		if err != nil {
			if c.Endpoints != nil || c.Memory.Services != nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %+v, %q", text, c, err)
			}
			return
		}
		again, err := encode(c)
		if err != nil {
			t.Fatalf("what was read from %q cannot be written: %v", text, err)
		}
		back, err := decode(again)
		if err != nil {
			t.Fatalf("%q is not read again: %v", again, err)
		}
		if diff := cmp.Diff(c, back, exact); diff != "" {
			t.Errorf("(-read +written and read)\n%s", diff)
		}
	})
}
