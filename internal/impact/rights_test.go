// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

const (
	cilium = `
		clusterrole cilium list,watch pods,nodes,namespaces,services,endpointslices.discovery.k8s.io,networkpolicies.networking.k8s.io * *.cilium.io patch nodes/status
		clusterrolebinding cilium cilium kube-system/cilium
		account kube-system/cilium
		pods DaemonSet kube-system/cilium 3 cilium cilium-agent`
	operator = `
		clusterrole cilium-operator list,watch pods,nodes,services * *.cilium.io
		clusterrolebinding cilium-operator cilium-operator kube-system/cilium-operator
		pods Deployment kube-system/cilium-operator 2 cilium-operator cilium-operator`
	coredns = `
		clusterrole system:coredns list,watch services,namespaces,endpointslices.discovery.k8s.io
		clusterrolebinding system:coredns system:coredns kube-system/coredns
		pods Deployment kube-system/coredns 2 coredns coredns label:k8s-app=kube-dns`
	proxy = `
		clusterrole system:node-proxier list,watch services,nodes,endpointslices.discovery.k8s.io label:kubernetes.io/bootstrapping=rbac-defaults
		clusterrolebinding system:node-proxier system:node-proxier user:system:kube-proxy label:kubernetes.io/bootstrapping=rbac-defaults
		clusterrolebinding kubeadm:node-proxier system:node-proxier kube-system/kube-proxy`
	till = `
		clusterrole reader get,list secrets
		clusterrolebinding till reader shop/till
		account shop/till
		pods Deployment shop/till 3 till c`
)

func TestRights(t *testing.T) {
	for name, tt := range map[string]struct {
		cluster string
		delete  string
		want    string // SEVERITY first object: title, a line each
	}{
		// Components.
		"the role of a CNI's agent":                                                   {cilium, "ClusterRole/cilium", "Outage ClusterRole cilium: pods created from now on have no network: Cilium's agent (kube-system/cilium, 3 pods running) may no longer list/watch pods, list/watch nodes, list/watch namespaces, 6 more"},
		"the binding of a CNI's agent":                                                {cilium, "ClusterRoleBinding/cilium", "Outage ClusterRoleBinding cilium: pods created from now on have no network: Cilium's agent (kube-system/cilium, 3 pods running) may no longer list/watch pods, list/watch nodes, list/watch namespaces, 6 more"},
		"both: the role stands for them":                                              {cilium, "ClusterRoleBinding/cilium ClusterRole/cilium", "Outage ClusterRole cilium: pods created from now on have no network: Cilium's agent (kube-system/cilium, 3 pods running) may no longer list/watch pods, list/watch nodes, list/watch namespaces, 6 more"},
		"the account of a CNI's agent":                                                {cilium, "ServiceAccount/kube-system/cilium", "Outage ServiceAccount kube-system/cilium: pods created from now on have no network: Cilium's agent (kube-system/cilium, 3 pods running) may no longer list/watch pods, list/watch nodes, list/watch namespaces, 6 more"},
		"a part of what an agent needs":                                               {cilium + "\nclusterrole more watch services\nclusterrolebinding more more kube-system/cilium", "ClusterRole/more", "Note ClusterRole more: ClusterRole more: nobody loses anything: others grant the same, or nobody is there to lose it"},
		"what an agent is granted and does not need":                                  {cilium + "\nclusterrole more patch pods\nclusterrolebinding more more kube-system/cilium", "ClusterRole/more", "Breaks ClusterRole more: DaemonSet kube-system/cilium (3 pods) may no longer patch pods"},
		"only one need, granted by a role of its own":                                 {strings.Replace(cilium, "pods,nodes,", "nodes,", 1) + "\nclusterrole more list,watch pods\nclusterrolebinding more more kube-system/cilium", "ClusterRole/more", "Outage ClusterRole more: pods created from now on have no network: Cilium's agent (kube-system/cilium, 3 pods running) may no longer list/watch pods"},
		"another binding grants the agent all it needs":                               {cilium + "\nclusterrole all * *.*\nclusterrolebinding all all kube-system/cilium", "ClusterRole/cilium ClusterRoleBinding/cilium", "Note ClusterRole cilium: ClusterRole cilium and ClusterRoleBinding cilium: nobody loses anything: others grant the same, or nobody is there to lose it"},
		"a group grants the agent all it needs":                                       {cilium + "\nclusterrole all * *.*\nclusterrolebinding all all group:system:serviceaccounts:kube-system", "ClusterRoleBinding/cilium", "Note ClusterRoleBinding cilium: ClusterRoleBinding cilium: nobody loses anything: others grant the same, or nobody is there to lose it"},
		"the agent itself goes too":                                                   {cilium, "ClusterRole/cilium DaemonSet/kube-system/cilium", "Note ClusterRole cilium: ServiceAccount kube-system/cilium may no longer list/watch pods, list/watch nodes, list/watch namespaces, 5 more, and nobody runs as it"},
		"an agent whose pods have all ended":                                          {strings.Replace(cilium, "cilium-agent", "cilium-agent ended", 1), "ClusterRole/cilium", "Breaks ClusterRole cilium: DaemonSet kube-system/cilium may no longer list/watch pods, list/watch nodes, list/watch namespaces, 5 more from the next run on"},
		"agent before operator before DNS":                                            {cilium + operator + coredns, "ClusterRole/system:coredns ClusterRole/cilium-operator ClusterRole/cilium", "Outage ClusterRole cilium: pods created from now on have no network: Cilium's agent (kube-system/cilium, 3 pods running) may no longer list/watch pods, list/watch nodes, list/watch namespaces, 6 more\nOutage ClusterRole system:coredns: names of new Services are not found, and none at all once CoreDNS restarts: CoreDNS (kube-system/coredns, 2 pods running) may no longer list/watch services, list/watch namespaces, list/watch endpointslices.discovery.k8s.io\nOutage ClusterRole cilium-operator: nodes that join get no addresses for their pods: Cilium's operator (kube-system/cilium-operator, 2 pods running) may no longer list/watch pods, list/watch nodes, list/watch services, 3 more"},
		"an agent that comes with the node's kubeconfig":                              {proxy + "\npods DaemonSet kube-system/kube-proxy 2 kube-proxy kube-proxy host", "ClusterRoleBinding/kubeadm:node-proxier", "Note ClusterRoleBinding kubeadm:node-proxier: ServiceAccount kube-system/kube-proxy may no longer list/watch services, list/watch nodes, list/watch endpointslices.discovery.k8s.io, and nobody runs as it"},
		"kube-proxy by its account and its user":                                      {proxy + "\npods DaemonSet kube-system/kube-proxy 2 kube-proxy kube-proxy", "ClusterRole/system:node-proxier", "Outage ClusterRole system:node-proxier: Services do not follow their pods any more, and new ones are not reached: kube-proxy (kube-system/kube-proxy, 2 pods running; user system:kube-proxy) may no longer list/watch services, list/watch nodes, list/watch endpointslices.discovery.k8s.io"},
		"kube-proxy's user, where its pods are an account":                            {proxy + "\npods DaemonSet kube-system/kube-proxy 2 kube-proxy kube-proxy", "ClusterRoleBinding/system:node-proxier", "Breaks ClusterRoleBinding system:node-proxier: user system:kube-proxy may no longer list/watch services, list/watch nodes, list/watch endpointslices.discovery.k8s.io"},
		"kube-proxy's user, where no pods are known":                                  {proxy, "ClusterRoleBinding/system:node-proxier", "Outage ClusterRoleBinding system:node-proxier: Services do not follow their pods any more, and new ones are not reached: kube-proxy (user system:kube-proxy) may no longer list/watch services, list/watch nodes, list/watch endpointslices.discovery.k8s.io"},
		"Calico that keeps its state in etcd":                                         {"clusterrole calico-node list,watch pods,nodes,namespaces,networkpolicies.networking.k8s.io\nclusterrolebinding calico-node calico-node kube-system/calico-node\npods DaemonSet kube-system/calico-node 2 calico-node calico-node env:DATASTORE_TYPE=etcdv3", "ClusterRole/calico-node", "Breaks ClusterRole calico-node: DaemonSet kube-system/calico-node (2 pods) may no longer list/watch pods, list/watch nodes, list/watch namespaces, list/watch networkpolicies.networking.k8s.io"},
		"Calico that keeps its state in the API":                                      {"clusterrole calico-node list,watch pods,nodes,namespaces,networkpolicies.networking.k8s.io\nclusterrolebinding calico-node calico-node kube-system/calico-node\npods DaemonSet kube-system/calico-node 2 calico-node calico-node env:DATASTORE_TYPE=kubernetes", "ClusterRole/calico-node", "Outage ClusterRole calico-node: pods created from now on have no network: Calico's agent (kube-system/calico-node, 2 pods running) may no longer list/watch pods, list/watch nodes, list/watch namespaces, list/watch networkpolicies.networking.k8s.io"},
		"an agent that loses it by a role of its own, and other things by two groups": {cilium + "\nclusterrole basic create selfsubjectreviews.authentication.k8s.io\nclusterrolebinding b1 basic group:system:authenticated\nclusterrolebinding b2 basic group:system:serviceaccounts:kube-system", "ClusterRole/basic ClusterRole/cilium", "Outage ClusterRole cilium: pods created from now on have no network: Cilium's agent (kube-system/cilium, 3 pods running) may no longer list/watch pods, list/watch nodes, list/watch namespaces, 6 more\nBreaks ClusterRole basic: group system:authenticated may no longer create selfsubjectreviews.authentication.k8s.io\nBreaks ClusterRole basic: group system:serviceaccounts:kube-system may no longer create selfsubjectreviews.authentication.k8s.io"},
		"metrics-server is no outage":                                                 {"clusterrole system:metrics-server list,watch pods,nodes\nclusterrolebinding m system:metrics-server kube-system/metrics-server\npods Deployment kube-system/metrics-server 1 metrics-server metrics-server", "ClusterRoleBinding/m", "Breaks ClusterRoleBinding m: kubectl top answers nothing, and autoscalers by CPU and memory stand still: metrics-server (kube-system/metrics-server, 1 pod running) may no longer list/watch pods, list/watch nodes"},
		// The control plane.
		"the scheduler's role":                   {"clusterrole system:kube-scheduler list,watch pods,nodes create pods/binding,leases.coordination.k8s.io\nclusterrolebinding system:kube-scheduler system:kube-scheduler user:system:kube-scheduler", "ClusterRole/system:kube-scheduler", "Outage ClusterRole system:kube-scheduler: pods created from now on stay Pending: kube-scheduler (user system:kube-scheduler) may no longer list/watch nodes, list/watch pods, create pods/binding, create leases.coordination.k8s.io"},
		"the controller manager's binding":       {"clusterrole system:kube-controller-manager list,watch *.* create leases.coordination.k8s.io\nclusterrolebinding system:kube-controller-manager system:kube-controller-manager user:system:kube-controller-manager", "ClusterRoleBinding/system:kube-controller-manager", "Outage ClusterRoleBinding system:kube-controller-manager: Deployments, Jobs, endpoints and namespaces stay as they are, whatever is asked for: kube-controller-manager (user system:kube-controller-manager) may no longer list/watch everything, create leases.coordination.k8s.io"},
		"a controller's account without pods":    {"clusterrole system:controller:deployment-controller update deployments.apps label:kubernetes.io/bootstrapping=rbac-defaults\nclusterrolebinding system:controller:deployment-controller system:controller:deployment-controller kube-system/deployment-controller", "ClusterRoleBinding/system:controller:deployment-controller", "Outage ClusterRoleBinding system:controller:deployment-controller: deployment-controller of kube-controller-manager stops: it may no longer update deployments.apps"},
		"two controllers":                        {"clusterrole system:controller:a update x\nclusterrolebinding system:controller:a system:controller:a kube-system/a\nclusterrole system:controller:b update y\nclusterrolebinding system:controller:b system:controller:b kube-system/b", "ClusterRole/system:controller:a ClusterRole/system:controller:b", "Outage ClusterRole system:controller:a: 2 controllers of kube-controller-manager stop: a and b may no longer update x, update y"},
		"kubelets by their group":                {"clusterrole system:node get,list pods\nclusterrolebinding nodes system:node group:system:nodes", "ClusterRoleBinding/nodes", "Outage ClusterRoleBinding nodes: kubelets (group system:nodes) may no longer get/list pods"},
		"kubelets in one namespace":              {"role kube-system/config get configmaps names:kubelet-config\nrolebinding kube-system/config role:config group:system:nodes", "Role/kube-system/config", "Breaks Role kube-system/config: group system:nodes may no longer get configmaps \"kubelet-config\" in namespace kube-system"},
		"the API server as a client of kubelets": {"clusterrole cluster-admin * *.*\nclusterrolebinding kubeadm:cluster-admins cluster-admin group:kubeadm:cluster-admins", "ClusterRoleBinding/kubeadm:cluster-admins", "Breaks ClusterRoleBinding kubeadm:cluster-admins: group kubeadm:cluster-admins may no longer do anything\nBreaks ClusterRoleBinding kubeadm:cluster-admins: kubectl logs, exec and port-forward are refused by all nodes: the API server as a client of kubelets (user kube-apiserver-kubelet-client) may no longer get/create nodes/proxy"},
		"system:masters is untouched":            {"clusterrole cluster-admin * *.* label:kubernetes.io/bootstrapping=rbac-defaults\nclusterrolebinding cluster-admin cluster-admin group:system:masters", "ClusterRole/cluster-admin ClusterRoleBinding/cluster-admin", "Note ClusterRole cluster-admin: ClusterRole cluster-admin and ClusterRoleBinding cluster-admin: nobody loses anything: others grant the same, or nobody is there to lose it"},
		// Pods of anybody.
		"a role that pods have":                         {till, "ClusterRole/reader", "Breaks ClusterRole reader: Deployment shop/till (3 pods) may no longer get/list secrets"},
		"a role that pods have in a namespace":          {"role shop/reader get secrets\nrolebinding shop/till role:reader shop/till\npods Deployment shop/till 1 till c", "Role/shop/reader", "Breaks Role shop/reader: Deployment shop/till (1 pod) may no longer get secrets in namespace shop"},
		"a ClusterRole that is bound in two namespaces": {"clusterrole reader get secrets\nrolebinding shop/till reader shop/till\nrolebinding bank/till reader shop/till\npods Deployment shop/till 1 till c", "ClusterRole/reader", "Breaks ClusterRole reader: Deployment shop/till (1 pod) may no longer get secrets in 2 namespaces"},
		"one account of several workloads":              {till + "\npods StatefulSet shop/db 2 till c\npods DaemonSet shop/logs 4 till c", "ClusterRole/reader", "Breaks ClusterRole reader: DaemonSet shop/logs (4 pods), Deployment shop/till (3 pods) and StatefulSet shop/db (2 pods) may no longer get/list secrets"},
		"a part is granted by another binding":          {till + "\nclusterrole getter get secrets\nrolebinding shop/getter getter shop/till", "ClusterRole/reader", "Breaks ClusterRole reader: Deployment shop/till (3 pods) may no longer get/list secrets"},
		"an account that a binding names as a user":     {"clusterrole reader get secrets\nclusterrolebinding till reader user:system:serviceaccount:shop:till\npods Deployment shop/till 1 till c", "ClusterRole/reader", "Breaks ClusterRole reader: Deployment shop/till (1 pod) may no longer get secrets"},
		"the default account, where a binding names it": {"clusterrole reader get secrets\nclusterrolebinding till reader shop/default\npods Deployment shop/till 1 default c", "ClusterRole/reader", "Breaks ClusterRole reader: Deployment shop/till (1 pod) may no longer get secrets"},
		"pods without a token":                          {strings.Replace(till, "3 till c", "3 till c tokenless", 1), "ClusterRole/reader", "Note ClusterRole reader: ServiceAccount shop/till may no longer get/list secrets, and nobody runs as it"},
		"the account of running pods":                   {till, "ServiceAccount/shop/till", "Breaks ServiceAccount shop/till: Deployment shop/till (3 pods) is nobody to the API server any more: each pod loses its account"},
		"an account that nothing binds":                 {"account shop/till\npods Deployment shop/till 1 till c", "ServiceAccount/shop/till", ""},
		"the namespace with all that runs in it":        {"namespace shop\nrole shop/reader get secrets\nrolebinding shop/till role:reader shop/till\naccount shop/till\npods Deployment shop/till 1 till c", "Namespace/shop", ""},
		"a namespace whose role somebody else has":      {"namespace shop\nrole shop/reader get secrets\nrolebinding shop/till role:reader bank/till\npods Deployment bank/till 1 till c", "Namespace/shop", "Breaks Role shop/reader: Deployment bank/till (1 pod) may no longer get secrets in namespace shop"},
		"a CronJob between two runs":                    {"clusterrole reader get secrets\nclusterrolebinding till reader shop/till\nmaker CronJob shop/nightly till 1", "ClusterRole/reader", "Breaks ClusterRole reader: CronJob shop/nightly may no longer get secrets from the next run on"},
		"a Deployment that is scaled to none":           {"clusterrole reader get secrets\nclusterrolebinding till reader shop/till\nmaker Deployment shop/till till 0", "ClusterRole/reader", "Note ClusterRole reader: ServiceAccount shop/till may no longer get secrets, and nobody runs as it"},
		// Users and groups.
		"a user":  {"clusterrole reader get secrets\nclusterrolebinding ada reader user:ada", "ClusterRoleBinding/ada", "Breaks ClusterRoleBinding ada: user ada may no longer get secrets"},
		"a group": {"clusterrole reader get secrets\nclusterrolebinding ops reader group:ops", "ClusterRole/reader", "Breaks ClusterRole reader: group ops may no longer get secrets"},
		"a group of accounts, with pods of two of them": {"clusterrole reader get secrets\nclusterrolebinding all reader group:system:serviceaccounts:shop\npods Deployment shop/till 2 till c\npods Deployment shop/db 1 db c\npods Deployment bank/till 1 till c", "ClusterRole/reader", "Breaks ClusterRole reader: group system:serviceaccounts:shop may no longer get secrets"},
		"a group by which an agent has what it needs":   {"clusterrole all * *.*\nclusterrolebinding all all group:system:serviceaccounts:kube-system\npods DaemonSet kube-system/cilium 3 cilium cilium-agent", "ClusterRoleBinding/all", "Outage ClusterRoleBinding all: pods created from now on have no network: Cilium's agent (kube-system/cilium, 3 pods running) may no longer list/watch pods, list/watch nodes, list/watch namespaces, 6 more\nBreaks ClusterRoleBinding all: group system:serviceaccounts:kube-system may no longer do anything"},
		"what everybody may":                            {"clusterrole system:discovery get /api,/apis label:kubernetes.io/bootstrapping=rbac-defaults\nclusterrolebinding system:discovery system:discovery group:system:authenticated label:kubernetes.io/bootstrapping=rbac-defaults", "ClusterRoleBinding/system:discovery", "Breaks ClusterRoleBinding system:discovery: group system:authenticated may no longer get /api, get /apis"},
		"a user, where a group of all grants the same":  {"clusterrole reader get secrets\nclusterrolebinding ada reader user:ada\nclusterrolebinding all reader group:system:authenticated", "ClusterRoleBinding/ada", "Note ClusterRoleBinding ada: ClusterRoleBinding ada: nobody loses anything: others grant the same, or nobody is there to lose it"},
		// Aggregation.
		"a role that an aggregated one takes in":       {"clusterrole view get pods get widgets.example.com aggregates:to-view\nclusterrole core get pods label:to-view\nclusterrole widgets get widgets.example.com label:to-view\nclusterrolebinding ada view user:ada", "ClusterRole/widgets", "Breaks ClusterRole widgets: user ada may no longer get widgets.example.com"},
		"a role that an aggregated one has from two":   {"clusterrole view get pods aggregates:to-view\nclusterrole core get pods label:to-view\nclusterrole again get pods label:to-view\nclusterrolebinding ada view user:ada", "ClusterRole/again", "Note ClusterRole again: ClusterRole again: nobody is bound to it"},
		"an aggregated role that nobody keeps current": {"clusterrole view aggregates:to-view\nclusterrole core get pods label:to-view\nclusterrolebinding ada view user:ada", "ClusterRole/core", "Note ClusterRole core: ClusterRole core: nobody is bound to it"},
		// Nobody loses anything.
		"a role that nobody is bound to":          {"clusterrole reader get secrets", "ClusterRole/reader", "Note ClusterRole reader: ClusterRole reader: nobody is bound to it"},
		"a binding to a role that is not there":   {"clusterrolebinding till reader shop/till\npods Deployment shop/till 1 till c", "ClusterRoleBinding/till", "Note ClusterRoleBinding till: ClusterRoleBinding till: its role does not exist, so that it grants nothing"},
		"a binding that names nobody":             {"clusterrole reader get secrets\nclusterrolebinding none reader", "ClusterRoleBinding/none", "Note ClusterRoleBinding none: ClusterRoleBinding none: it names nobody"},
		"an account under which nothing runs":     {"clusterrole reader get secrets\nclusterrolebinding till reader shop/till", "ClusterRoleBinding/till", "Note ClusterRoleBinding till: ServiceAccount shop/till may no longer get secrets, and nobody runs as it"},
		"one of two bindings that grant the same": {till + "\nclusterrolebinding again reader shop/till", "ClusterRoleBinding/till", "Note ClusterRoleBinding till: ClusterRoleBinding till: nobody loses anything: others grant the same, or nobody is there to lose it"},
	} {
		t.Run(name, func(t *testing.T) {
			s := impacttest.State(t, rightsCluster(t, tt.cluster))
			report := impacttest.Report(t, s, strings.Fields(tt.delete)...)
			if diff := cmp.Diff(strings.TrimSpace(tt.want), rightsText(report)); diff != "" {
				t.Errorf("(- wanted, + found)\n%s", diff)
			}
		})
	}
}

// rightsText is what a report says of rights, a line for each consequence.
func rightsText(r impact.Report) string {
	var lines []string
	for _, q := range r.Consequences {
		if strings.HasPrefix(q.ID, "rights-") {
			lines = append(lines, fmt.Sprintf("%s %s: %s", [...]string{"Note", "Breaks", "Outage"}[q.Severity], q.Objects[0], q.Title))
		}
	}
	return strings.Join(lines, "\n")
}

// incident is the second incident's cluster: its CNI was installed by Helm, and
// so were others.
const incident = cilium + operator + `
	clusterrole cert-manager-cainjector list,watch secrets
	clusterrolebinding cert-manager-cainjector cert-manager-cainjector cert-manager/cainjector
	pods Deployment cert-manager/cainjector 40 cainjector cainjector
	clusterrole dashboard get pods
	clusterrolebinding dashboard dashboard user:ada
	clusterrole unbound get pods`

func TestTheSecondIncidentIsForeseen(t *testing.T) {
	s := impacttest.State(t, rightsCluster(t, incident))
	r := impacttest.Report(t, s,
		"ClusterRole/cert-manager-cainjector", "ClusterRole/cilium", "ClusterRole/cilium-operator", "ClusterRole/dashboard", "ClusterRole/unbound",
		"ClusterRoleBinding/cert-manager-cainjector", "ClusterRoleBinding/cilium", "ClusterRoleBinding/cilium-operator", "ClusterRoleBinding/dashboard")
	first := r.Consequences[0]
	if first.Severity != impact.Outage || first.Objects[0].String() != "ClusterRole cilium" || !strings.HasPrefix(first.Title, "pods created from now on have no network: ") {
		t.Errorf("first comes %v %s: %s", first.Severity, first.Objects[0], first.Title)
	}
	if second := r.Consequences[1]; second.Objects[0].String() != "ClusterRole cilium-operator" || second.Severity != impact.Outage {
		t.Errorf("then %s", second.Title)
	}
	if last := r.Consequences[len(r.Consequences)-1]; last.Severity != impact.Note || last.Objects[0].String() != "ClusterRole unbound" {
		t.Errorf("last %s", last.Title)
	}
}

func TestRightsInDetail(t *testing.T) {
	for name, tt := range map[string]struct {
		cluster string
		delete  string
		want    string // a line of the first consequence, as impacttest has it
	}{
		"all that is lost, not only what is needed":       {cilium, "ClusterRole/cilium", "  Lost: list/watch pods, list/watch nodes, list/watch namespaces, list/watch services, list/watch endpointslices.discovery.k8s.io, list/watch networkpolicies.networking.k8s.io, do anything to everything of cilium.io, patch nodes/status."},
		"the binding that stays":                          {cilium, "ClusterRole/cilium", "  ClusterRoleBinding cilium stays, and names a role that is gone: whoever makes one of that name grants what it says."},
		"who is hit: the account":                         {cilium, "ClusterRole/cilium", "  hits: ServiceAccount kube-system/cilium"},
		"who is hit: what runs as it":                     {cilium, "ClusterRole/cilium", "  hits: DaemonSet kube-system/cilium (3 pods)"},
		"who is hit by a group's loss":                    {"clusterrole reader get secrets\nclusterrolebinding all reader group:system:serviceaccounts\npods Deployment shop/till 2 till c", "ClusterRole/reader", "  hits: Deployment shop/till (2 pods)"},
		"what brings it back":                             {proxy, "ClusterRole/system:node-proxier", "  An API server makes ClusterRole system:node-proxier again when it starts, and not before."},
		"what goes on to grant a part":                    {till + "\nclusterrole getter get secrets\nrolebinding shop/getter getter shop/till", "ClusterRole/reader", "  A part of that is still granted by RoleBinding shop/getter (ClusterRole getter)."},
		"the way by which an aggregated role loses rules": {"clusterrole view get pods get widgets.example.com aggregates:to-view\nclusterrole core get pods label:to-view\nclusterrole widgets get widgets.example.com label:to-view\nclusterrolebinding ada view user:ada", "ClusterRole/widgets", "  ClusterRole view has rules of ClusterRole widgets by aggregation, and loses them with it."},
		"an account that goes":                            {cilium, "ServiceAccount/kube-system/cilium", "  ServiceAccount kube-system/cilium goes: what its pods ask for is refused as from nobody."},
		"a user of whom nothing is seen":                  {"clusterrole reader get secrets\nclusterrolebinding ada reader user:ada", "ClusterRole/reader", "  Whether anybody uses that cannot be seen here."},
		"an account of which a token may be anywhere":     {"clusterrole reader get secrets\nclusterrolebinding ci reader ci/deployer", "ClusterRole/reader", "  A token of it that was given away, as to a pipeline, could not be seen here."},
		"both objects that cause it":                      {cilium, "ClusterRoleBinding/cilium ClusterRole/cilium", "  by: ClusterRoleBinding cilium"},
	} {
		t.Run(name, func(t *testing.T) {
			r := impacttest.Report(t, impacttest.State(t, rightsCluster(t, tt.cluster)), strings.Fields(tt.delete)...)
			r.Consequences = r.Consequences[:1]
			if got := impacttest.Text(r); !strings.Contains(got, "\n"+tt.want+"\n") {
				t.Errorf("no line %q in\n%s", tt.want, got)
			}
		})
	}
}

func TestRightsWhereNotAllIsKnown(t *testing.T) {
	bare := strings.ReplaceAll(cilium, "pods DaemonSet kube-system/cilium 3 cilium cilium-agent", "")
	judge := func(t *testing.T, cluster, unknown string, names ...string) impact.Report {
		s := impacttest.State(t, rightsCluster(t, cluster))
		s.SetUnknown(schema.ParseGroupResource(unknown), "the API server does not let ada list them")
		return impacttest.Report(t, s, names...)
	}
	t.Run("an account that bears a component's name may be its, where pods are not known", func(t *testing.T) {
		r := judge(t, bare, "pods", "ClusterRole/cilium")
		if r.Worst() != impact.Outage || !strings.HasPrefix(r.Consequences[0].Title, "pods created from now on have no network: Cilium's agent (kube-system/cilium) may no longer") || len(r.Incomplete) == 0 {
			t.Errorf("%s", impacttest.Text(r))
		}
	})
	t.Run("any other account may be that of running pods", func(t *testing.T) {
		r := judge(t, "clusterrole reader get secrets\nclusterrolebinding till reader shop/till", "pods", "ClusterRole/reader")
		if r.Worst() != impact.Breaks || !strings.Contains(impacttest.Text(r), "Whether pods run as it is not known: the API server does not let ada list them.") {
			t.Errorf("%s", impacttest.Text(r))
		}
	})
	for _, unknown := range []string{"clusterrolebindings", "rolebindings"} {
		t.Run("that nobody is bound to a role is not said where not all "+unknown+" are known", func(t *testing.T) {
			r := judge(t, "clusterrole reader get secrets", unknown+".rbac.authorization.k8s.io", "ClusterRole/reader")
			if rightsText(r) != "" || !strings.Contains(strings.Join(r.Incomplete, " "), "who is bound to what") {
				t.Errorf("%s", impacttest.Text(r))
			}
		})
	}
}

// 10 000 bindings of one role to as many accounts, of which a tenth have pods:
// budget 1 s of a core, which is 0.1 ms for each who loses something.
func BenchmarkRightsOf10000Bindings(b *testing.B) {
	var text strings.Builder
	text.WriteString("clusterrole edit get,list,watch,create pods,services,secrets,configmaps\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "rolebinding n%d/edit edit n%d/worker\n", i, i)
	}
	for i := range 1_000 {
		fmt.Fprintf(&text, "pods Deployment n%d/worker 2 worker c\n", i)
	}
	s := impacttest.State(b, rightsCluster(b, text.String()))
	d := impacttest.Delete(b, s, impact.Background, "ClusterRole/edit")
	for b.Loop() {
		if r := impact.Examine(s, d); len(r.Consequences) != 10_000 {
			b.Fatalf("%d consequences", len(r.Consequences))
		}
	}
}

// One binding among 10 000, as a guard sees it: budget 1 ms.
func BenchmarkRightsOfOneBinding(b *testing.B) {
	var text strings.Builder
	text.WriteString("clusterrole edit get,list,watch,create pods,services,secrets,configmaps\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "rolebinding n%d/edit edit n%d/worker\n", i, i)
	}
	s := impacttest.State(b, rightsCluster(b, text.String()))
	roots := impacttest.Roots(b, s, "RoleBinding/n7/edit")
	for b.Loop() {
		if r := impact.Examine(s, impact.Delete(s, roots, impact.Background)); len(r.Consequences) != 1 {
			b.Fatalf("%d consequences", len(r.Consequences))
		}
	}
}
