// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// controllers are the accounts in kube-system with which the controller
// manager's controllers delete. They finish what somebody began elsewhere: a
// namespace, an owner, a rollout, a completed Job.
var controllers = []string{
	"attachdetach-controller", "clusterrole-aggregation-controller", "cronjob-controller", "daemon-set-controller",
	"deployment-controller", "endpoint-controller", "endpointslice-controller", "endpointslicemirroring-controller",
	"ephemeral-volume-controller", "generic-garbage-collector", "job-controller", "legacy-service-account-token-cleaner",
	"namespace-controller", "node-controller", "persistent-volume-binder", "pod-garbage-collector", "replicaset-controller",
	"replication-controller", "resource-claim-controller", "service-account-controller", "service-controller",
	"statefulset-controller", "taint-eviction-controller", "token-cleaner", "ttl-after-finished-controller",
}

// automatic says that no person, and no program of theirs, deletes: one of the
// cluster's own controllers does, or the kubelet that ends a pod which goes.
func automatic(u authenticationv1.UserInfo) bool {
	switch u.Username {
	case "system:kube-controller-manager", "system:kube-scheduler", "system:apiserver":
		return true
	}
	account, ours := strings.CutPrefix(u.Username, "system:serviceaccount:kube-system:")
	return ours && slices.Contains(controllers, account) || slices.Contains(u.Groups, "system:nodes")
}
