// SPDX-License-Identifier: Apache-2.0

package rights

// row is one delete of the cluster in testdata, and what preflight has to say of
// it.
type row struct {
	args string // of kubectl delete
	// first is the object that stands first, and sees a part of what people would
	// see; both are empty if nothing that is in use breaks.
	first, sees string
	why         string // for the page
}

// harmful are deletes that break something in use. Those of ClusterRoles and their
// bindings are another test's.
var harmful = []row{
	{"daemonset cilium -n kube-system", "DaemonSet kube-system/cilium", "no network", "the CNI's agents stop"},
	{"serviceaccount cilium -n kube-system", "ServiceAccount kube-system/cilium", "no network", "the CNI's agents lose who they are"},
	{"configmap cilium-config -n kube-system", "ConfigMap kube-system/cilium-config", "no network when Cilium's agent starts anew", "the CNI's agents read it when they start"},
	{"crd ciliumnodes.cilium.io ciliumidentities.cilium.io", "CustomResourceDefinition cilium", "loses 2 kinds of its own", "with the kinds all their objects vanish, and the CNI runs on them"},
	{"deployment coredns -n kube-system", "Deployment kube-system/coredns", "names of new Services are not found", "nobody answers for names"},
	{"service kube-dns -n kube-system", "Service kube-system/kube-dns", "resolve any name", "pods ask at its address"},
	{"service kubernetes -n default", "Service default/kubernetes", "no longer reach the API server", "pods reach the API server by it"},
	{"daemonset/kube-proxy -n kube-system", "DaemonSet kube-system/kube-proxy", "Services do not follow their pods", "Services are no longer kept up to date"},
	{"apiservice v1beta1.metrics.k8s.io", "APIService v1beta1.metrics.k8s.io", "kubectl top fails", "kubectl top and autoscaling by CPU end"},
	{"service metrics-server -n kube-system", "Service kube-system/metrics-server", "kubectl top fails", "an APIService leads to it"},
	{"deployment cert-manager-webhook -n cert-manager", "Deployment cert-manager/cert-manager-webhook", "certificates.cert-manager.io are refused", "its webhook has failurePolicy Fail"},
	{"service/cert-manager-webhook -n cert-manager", "Service cert-manager/cert-manager-webhook", "certificates.cert-manager.io are refused", "the webhook is called by it"},
	{"namespace cert-manager", "Service cert-manager/cert-manager-webhook", "certificates.cert-manager.io are refused", "the webhook stays, and nobody answers it"},
	{"validatingwebhookconfiguration cert-manager-webhook", "ValidatingWebhookConfiguration cert-manager-webhook", "certificates.cert-manager.io are no longer checked", "nothing checks certificates any more"},
	{"mutatingwebhookconfiguration --all", "MutatingWebhookConfiguration sidecars", "creates of pods are stored as they come", "new pods come up without what it puts into them"},
	{"validatingadmissionpolicybinding no-latest", "ValidatingAdmissionPolicyBinding no-latest", "deployments.apps are no longer checked", "the policy checks nothing without it"},
	{"crd certificates.cert-manager.io", "CustomResourceDefinition certificates.cert-manager.io", "certificates.cert-manager.io", "all certificates go with it"},
	{"crd backups.ops.example.com", "CustomResourceDefinition backups.ops.example.com", "backups.ops.example.com", "all backups go with it"},
	{"backups.ops.example.com,deployments --all -n ops", "Backup ops/monday", "Backup ops/monday hangs", "who would take the finalizer away goes as well"},
	{"deployment web -n shop", "Deployment shop/web", "its 3 running pods end", "its pods stop, and the Service is left empty"},
	{"service web -n shop", "Service shop/web", "answers nobody any more", "three pods answer at its address"},
	{"endpointslice billing-x7k2p -n data", "EndpointSlice data/billing-x7k2p", "Service data/billing answers nobody", "no controller writes it again"},
	{"pod debug -n shop", "Pod shop/debug", "nothing starts it again", "nothing makes it again"},
	{"replicaset lonely -n shop", "ReplicaSet shop/lonely", "nothing starts it again", "no Deployment stands behind it"},
	{"statefulset db -n data", "StatefulSet data/db", "Service data/db answers nobody", "the database stops"},
	{"configmap web-config -n shop", "ConfigMap shop/web-config", "cannot start again", "pods cannot start without it"},
	{"secret web-db -n shop", "Secret shop/web-db", "cannot start again", "pods cannot start without it"},
	{"secret shop-tls -n shop", "Secret shop/shop-tls", "no longer serves TLS", "the Ingress serves TLS with it"},
	{"secret -n kube-system -l owner=helm,status=deployed", "Secret kube-system/sh.helm.release.v1.cilium.v2", "Helm forgets release kube-system/cilium", "Helm forgets the release"},
	{"serviceaccount web -n shop", "ServiceAccount shop/web", "starts no new pod", "new pods of the Deployment are refused"},
	{"pvc data-db-0 -n data", "PersistentVolumeClaim data/data-db-0", "data of PersistentVolumeClaim data/data-db-0", "a pod uses it, and the volume is reclaimed by Delete"},
	{"pv pv-db-0", "PersistentVolume pv-db-0", "loses its volume", "a claim is bound to it"},
	{"storageclass fast", "StorageClass fast", "StatefulSet data/db gets no new volume", "a StatefulSet makes claims of it"},
	{"csidriver csi.example.com", "CSIDriver csi.example.com", "may not be mounted any more", "volumes are attached by it"},
	{"volumeattachment csi-1", "VolumeAttachment csi-1", "torn from under Pod data/db-0", "a running pod has the volume"},
	{"networkpolicy only-ingress -n shop", "NetworkPolicy shop/only-ingress", "anybody may connect", "it is all that isolates the pods"},
	{"ingress web -n shop", "Ingress shop/web", "requests for shop.example.com are no longer led", "people come in by it"},
	{"ingressclass nginx", "IngressClass nginx", "Ingress shop/web may no longer be served", "an Ingress names it"},
	{"priorityclass important", "PriorityClass important", "new pods of Deployment shop/web", "a Deployment names it"},
	{"runtimeclass kata", "RuntimeClass kata", "new pods of ReplicaSet shop/lonely", "a ReplicaSet names it"},
	{"hpa web -n shop", "HorizontalPodAutoscaler shop/web", "Deployment shop/web is scaled no more", "the Deployment is no longer scaled"},
	{"node n1", "Node n1", "pods end on Node n1", "the pods on it go with it"},
	{"nodes --all", "Node", "no node is left to run pods", "nothing is left to run anything on"},
	{"role backup-operator -n ops", "Role ops/backup-operator", "Deployment ops/backup-operator (1 pod) may no longer", "a running operator loses what it does"},
	{"rolebinding developers -n shop", "RoleBinding shop/developers", "group developers may no longer", "whoever is of the group loses it"},
	{"-f testdata/shop-web.yaml", "Deployment shop/web", "its 3 running pods end", "files name what goes, as for kubectl"},
}

// harmless are deletes of what comes back by itself, or of what nobody uses.
var harmless = []row{
	{args: "clusterrole unused", why: "nobody is bound to it"},
	{args: "clusterrolebinding dangling", why: "the role that it names is not there"},
	{args: "clusterrole,clusterrolebinding calico-node", why: "no pod runs under the account"},
	{args: "serviceaccount calico-node -n kube-system", why: "no pod runs under it"},
	{args: "configmap calico-config -n kube-system", why: "nobody mounts it"},
	{args: "crd ippools.crd.projectcalico.org", why: "it has no instance"},
	{args: "crd schedules.ops.example.com", why: "it has no instance"},
	{args: "crd challenges.acme.cert-manager.io", why: "it has no instance"},
	{args: "rolebinding web-again -n shop", why: "another binding grants the same"},
	{args: "role unbound -n shop", why: "nobody is bound to it"},
	{args: "rolebinding idle idle-leader -n shop", why: "no pod runs under the account"},
	{args: "serviceaccount idle -n shop", why: "no pod runs under it"},
	{args: "pod web-5d4f-a -n shop", why: "its ReplicaSet makes another one, and two are ready"},
	{args: "pod migrated -n shop", why: "it has come to its end"},
	{args: "pods -n shop --field-selector=status.phase=Succeeded", why: "they have come to their end"},
	{args: "job import -n shop", why: "it is complete"},
	{args: "cronjob paused -n shop", why: "it is suspended"},
	{args: "replicaset web-77aa -n shop", why: "an old revision without pods"},
	{args: "deployment stopped -n shop", why: "it is scaled to zero"},
	{args: "configmap stopped-config web-old -n shop", why: "no pod runs that reads them"},
	{args: "secret former-tls -n shop", why: "nobody mounts it"},
	{args: "secret web-tuning -n shop", why: "pods start without it: it is optional"},
	{args: "secret -n kube-system -l owner=helm,status=superseded", why: "Helm needs them for a rollback only"},
	{args: "configmap kube-root-ca.crt -n shop", why: "a controller writes it again"},
	{args: "service canary -n shop", why: "it has no endpoint"},
	{args: "endpointslice web-x7k2p -n shop", why: "a controller writes it again"},
	{args: "networkpolicy for-nobody -n shop", why: "it selects no pod"},
	{args: "resourcequota,limitrange --all -n shop", why: "pods that run go on"},
	{args: "pdb web -n shop", why: "it only guards against evictions"},
	{args: "pvc never-used -n data", why: "it is not bound, and no pod uses it"},
	{args: "pv pv-free", why: "no claim is bound to it"},
	{args: "storageclass slow", why: "no claim waits for it"},
	{args: "csidriver former.example.com", why: "no volume is attached by it"},
	{args: "priorityclass forgotten", why: "no workload names it"},
	{args: "runtimeclass gvisor", why: "no workload names it"},
	{args: "ingressclass traefik", why: "no Ingress names it"},
	{args: "validatingadmissionpolicy drafted", why: "nothing binds it"},
	{args: "apiservice v1.apps", why: "the API server writes it again"},
	{args: "lease moved-away -n kube-system", why: "nobody renews it"},
	{args: "node n3", why: "it is not ready, and no pod is on it"},
	{args: "namespace old", why: "it is empty"},
	{args: "events --all -A", why: "they are notes"},
	{args: "pods -n kube-system -l k8s-app=cilium --field-selector=spec.nodeName=n3", why: "nothing matches"},
}
