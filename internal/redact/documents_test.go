// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"strings"
	"testing"
)

// word is a password that only its place tells from other words.
const word = "hunter2horse"

func TestSecretsInFilesAndSettingsAreLeftOut(t *testing.T) {
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	env := func(value string) fields {
		return fields{"spec": fields{"containers": []fields{{"env": []fields{{"name": "X", "value": value}}}}}}
	}
	args := func(args ...string) fields { return fields{"spec": fields{"containers": []fields{{"args": args}}}} }
	file := func(text string) fields { return fields{"data": fields{"file": text}} }
	note := func(text string) fields { return fields{"metadata": fields{"annotations": fields{"x.io/y": text}}} }
	for name, c := range map[string]struct {
		kind   kind
		object fields
		mark   string
	}{
		"a copy of a Secret that another tool made, in its annotation": {secretsKind, note(`{"x":"` + encode(word) + `"}`), encode(word)},
		"a copy of a Secret in the annotation of something else":       {servicesKind, note(`{"apiVersion":"v1","kind":"Secret","data":{"x":"` + encode(word) + `"}}`), encode(word)},
		"a Secret's stringData anywhere":                               {thingsKind, fields{"status": fields{"message": `apply {"stringData":{"x":"` + word + `"}}`}}, word},
		"a Secret within another object":                               {thingsKind, fields{"spec": fields{"objects": []fields{{"kind": "Secret", "data": fields{"x": encode(word)}}}}}, encode(word)},
		"a Secret's manifest in a ConfigMap":                           {configMapsKind, file("kind: Secret\nmetadata:\n  name: a\ndata:\n  motto: " + word), word},
		"the annotations of a pod's template":                          {thingsKind, fields{"spec": fields{"template": fields{"metadata": fields{"annotations": fields{lastApplied: word, "x": random}}}}}, word},
		"what chance made in the annotations of a pod's template":      {thingsKind, fields{"spec": fields{"template": fields{"metadata": fields{"annotations": fields{"x": random}}}}}, random},
		"an environment in a ConfigMap's YAML":                         {configMapsKind, file("env:\n- name: DB_PASSWORD\n  value: " + word), word},
		"an environment in a ConfigMap's JSON":                         {configMapsKind, file(`[{"name": "DB_PASSWORD", "value": "` + word + `"}]`), word},
		"a setting that is called key":                                 {thingsKind, fields{"spec": fields{"params": []fields{{"key": "password", "value": word}}}}, word},
		"a shared key":                                                 {thingsKind, fields{"spec": fields{"preSharedKey": word, "psk": word}}, word},
		"a login":                                                      {thingsKind, fields{"spec": fields{"basicAuth": "user:" + word}}, word},
		"a flag in a script":                                           {podsKind, args("sh", "-c", "mysql --password "+word+" -h db"), word},
		"a flag in words of an event":                                  {servicesKind, fields{"note": `exec ["mysql" "--password" "` + word + `"]`}, word},
		"a flag in a list within an annotation":                        {servicesKind, note(`["agent","--token","` + word + `"]`), word},
		"curl's login in a script":                                     {podsKind, args("sh", "-c", "curl -u admin:"+word+" http://x"), word},
		"curl's login as an argument":                                  {podsKind, args("curl", "-u", "admin:"+word, "http://x"), word},
		"an address of a database without a scheme":                    {podsKind, env("user:" + word + "@tcp(db:3306)/app"), word},
		"a key in an address of Azure":                                 {podsKind, env("AccountName=x;AccountKey=" + encode(word) + ";"), encode(word)},
		"a token of GitLab":                                            {podsKind, env("glpat-abcDEF123456ghiJKL78"), "glpat-"},
		"the hash of a password":                                       {configMapsKind, file("admin:$2y$05$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ012345"), "$2y$05"},
		"a setting in base64":                                          {configMapsKind, file(encode("token: " + word)), encode("token: " + word)},
		"a login of HTTP in a server's settings":                       {configMapsKind, file("proxy_set_header Authorization \"Basic " + encode("u:"+word) + "\";"), encode("u:" + word)},
		"a header in a server's settings":                              {servicesKind, note("proxy_set_header X-Api-Key " + word + ";"), word},
		"a setting without a separator":                                {configMapsKind, file("# our server\nrequirepass " + word + "\n"), word},
		"a login in netrc":                                             {configMapsKind, file("machine h login u password " + word), word},
		"a value in the line behind its key":                           {configMapsKind, file("a:\n  password:\n    " + word + "\n"), word},
		"a list of values behind its key":                              {configMapsKind, file("passwords:\n- " + word + "\n"), word},
		"an element of XML":                                            {configMapsKind, file("<user><password>" + word + "</password></user>"), word},
		"a bootstrap token in a command":                               {configMapsKind, file("kubeadm join h:6443 --token abcdef.0123456789abcdef"), "abcdef.0123"},
		"the release of Helm":                                          {secretsKind, fields{"type": "helm.sh/release.v1", "data": fields{"release": encode(random)}}, encode(random)},
		"a token that an API server gave out":                          {kind{resource: "serviceaccounts"}, fields{"status": fields{"token": word}}, word},
		"a webhook's URL with a password":                              {thingsKind, fields{"webhooks": []fields{{"clientConfig": fields{"url": "https://u:" + word + "@h/x"}}}}, word},
		"a webhook's URL with a token":                                 {thingsKind, fields{"webhooks": []fields{{"clientConfig": fields{"url": "https://h/x?token=" + word}}}}, word},
		"values of a chart":                                            {thingsKind, fields{"spec": fields{"values": fields{"auth": fields{"rootPassword": word}}, "valuesContent": "auth:\n  password: " + word}}, word},
	} {
		t.Run(name, func(t *testing.T) {
			if got := redacted(t, c.kind, c.object); strings.Contains(got, c.mark) {
				t.Error(got)
			}
		})
	}
}

func TestSettingsWithoutSecretsStay(t *testing.T) {
	for name, text := range map[string]string{
		"kube-proxy's kubeconfig":       "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt\n    server: https://10.0.0.1:6443\n  name: default\nusers:\n- name: default\n  user:\n    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token\n",
		"an image with tag and digest":  "registry:5000/app:1.0@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"a reference to a Secret":       `{"kind":"Secret","name":"login"}`,
		"another kind of Secrets":       "kind: SecretStore\nspec:\n  data: x\n",
		"an environment from a Secret":  "env:\n- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: login\n      key: password\n",
		"a sentence about tokens":       "The controller of tokens gives each account a token when it is asked to.",
		"a comment about a password":    "# no password here\nlog_level info\n",
		"volumes of Secrets":            "volumes:\n- name: a\n  secret:\n    secretName: login\n",
		"flags that say where":          "kube-apiserver --token-auth-file /etc/tokens.csv --secret-name x --enable-bootstrap-token-auth --v 2",
		"a repository and an address":   "git@github.com:org/repo ssh://git@host:22/x mailto:a@b.org",
		"a class path and a plain list": "secrets:\n- name: registry\nports:\n- 80\n",
	} {
		t.Run(name, func(t *testing.T) {
			if got := redacted(t, configMapsKind, fields{"data": fields{"file": text}}); strings.Contains(got, leftOut) {
				t.Error(got)
			}
		})
	}
}
