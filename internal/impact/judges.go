// SPDX-License-Identifier: Apache-2.0

package impact

// judges are all, each in a file of its name.
var judges = []Judge{
	judgeRights,
	judgeDefinitions,
	judgeNamespaces,
	judgeFinalizers,
	judgeAdmission,
	judgeAggregation,
	judgeTraffic,
	judgeNodes,
	judgeWorkloads,
	judgeMounts,
	judgeStorage,
	judgeClasses,
	judgePolicies,
}
