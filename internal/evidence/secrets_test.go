// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"compress/gzip"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// planted is what nobody may find in a bundle. It is in use nowhere.
const planted = "zQ8vTr4wLx1mNp7s"

func TestNoSecretIsInABundle(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte(planted))
	token := "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0." + planted
	key := "-----BEGIN EC PRIVATE KEY-----\n" + planted + "\n-----END EC PRIVATE KEY-----\n"
	contents := []struct {
		kind Kind
		text string
	}{
		{Objects, `{"kind":"List","items":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"motto":"` + encoded + `"}}]}`},
		{Objects, "kind: ConfigMap\ndata:\n  app.conf: |\n    password = " + planted + "\n"},
		{Objects, `{"kind":"PodList","items":[{"spec":{"containers":[{"env":[{"name":"DB_PASS","value":"` + planted + `"}],"args":["--token=` + planted + `"]}]}}]}`},
		{Objects, `{"kind":"PodList","items":[{"spec":{"containers":[{"env":[{"name":"DB_PASS","value":"` + planted}, // half an output
		{Dump, lbList + "# Bearer " + planted + "\n"},
		{Log, "level=info msg=\"got token\" token=" + token + "\n" + key + "curl -u admin:" + planted + " https://u:" + planted + "@h/\n"},
		{CiliumConfig, "etcd-password: " + planted + "\n"},
		{CiliumStatus, `{"kubernetes": {"msg": "Authorization: Bearer ` + planted + `"}}`},
		{FairleadStatus, `{"schemaVersion": 1, "source": "https://admin:` + planted + `@10.0.0.1:6443"}`},
		{Probes, `[{"answer": "set-cookie: token=` + planted + `"}]`},
		{Events, `{"name":"a","content":{"token":"` + planted + `"}}` + "\n" + `{"name":"b","content":{"token":"` + planted + `"}}`},
		{Unknown, "users:\n- user:\n    token: " + planted + "\n    client-key-data: " + base64.StdEncoding.EncodeToString([]byte(key)) + "\n"},
		{Access, "not json password=" + planted},
	}
	b := &Bundle{Made: when}
	for i, c := range contents {
		b.Records = append(b.Records, Record{Path: "1/nodes/a/" + string(rune('a'+i)), Kind: c.kind, Content: []byte(c.text), Time: when,
			Command: "curl -H 'Authorization: Bearer " + planted + "' https://x", Error: "dial https://u:" + planted + "@h: refused"})
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "b.tgz")
	if err := Write(archive, b); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	stays(t, "the archive", string(text), planted, encoded, token)
}

// stays says that secrets are not in a text.
func stays(t *testing.T, where, text string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if at := strings.Index(text, secret); at >= 0 {
			t.Errorf("%s holds %q: …%s…", where, secret, text[max(0, at-80):min(len(text), at+80)])
		}
	}
}

func TestWhatIsReadStaysReadable(t *testing.T) {
	tables := lbList + "10.0.0.11:80/TCP (0)   0.0.0.0:0 (1) (0) [ClusterIP, non-routable]\n"
	objects := "apiVersion: v1\nkind: Service\nmetadata:\n  name: auth-token # of the shop\n"
	b := &Bundle{Made: when, Records: []Record{
		{Path: "1/nodes/a/dump.txt", Kind: Dump, Time: when, Content: []byte(tables)},
		{Path: "1/objects/_a.yaml", Kind: Objects, Time: when, Content: []byte(objects)},
	}}
	path := filepath.Join(t.TempDir(), "b.tgz")
	if err := Write(path, b); err != nil {
		t.Fatal(err)
	}
	got, err := Open(path)
	if err != nil || string(got.Records[0].Content) != tables || string(got.Records[1].Content) != objects {
		t.Errorf("%v, %v", got, err)
	}
}
