// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestTrim(t *testing.T) {
	const container = `"command":["run"],"args":["-p","hunter2"],"env":[{"name":"PLAIN","value":"hunter2"}],"ports":[{"name":"http","containerPort":80}],"readinessProbe":{"exec":{"command":["hunter2"]}}`
	for _, test := range []struct {
		name, object string
		told         bool
	}{
		{"what a user's pod is started with is nobody's business", `{"kind":"Pod","metadata":{"namespace":"shop"},"spec":{"containers":[{"name":"web",` + container + `}]}}`, false},
		{"nor that of its init containers", `{"kind":"Pod","metadata":{"namespace":"shop"},"spec":{"initContainers":[{"name":"migrate",` + container + `}]}}`, false},
		{"nor what a Deployment makes", `{"kind":"Deployment","metadata":{"namespace":"shop"},"spec":{"template":{"spec":{"containers":[{"name":"web",` + container + `}]}}}}`, false},
		{"how a part of the system is started is evidence", `{"kind":"DaemonSet","metadata":{"namespace":"kube-system"},"spec":{"template":{"spec":{"containers":[{"name":"any",` + container + `}]}}}}`, true},
		{"so is a part of it in another namespace, by its priority", `{"kind":"Pod","metadata":{"namespace":"net"},"spec":{"priorityClassName":"system-node-critical","containers":[{"name":"any",` + container + `}]}}`, true},
		{"or by its container", `{"kind":"Pod","metadata":{"namespace":"net"},"spec":{"containers":[{"name":"cilium-agent",` + container + `}]}}`, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(test.object), &object.Object); err != nil {
				t.Fatal(err)
			}
			trim(object)
			text, err := json.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			if told := strings.Contains(string(text), "hunter2"); told != test.told {
				t.Errorf("what it is started with: %v, want %v in %s", told, test.told, text)
			}
			if !strings.Contains(string(text), `"containerPort":80`) {
				t.Errorf("its ports are gone: %s", text)
			}
		})
	}
}
