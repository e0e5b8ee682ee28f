// SPDX-License-Identifier: Apache-2.0

// Package guard judges single deletes as an admission webhook, at the moment
// at which an API server asks, by what it watches of the cluster.
//
// It follows the kinds that the judges of internal/impact read, answers
// AdmissionReviews over TLS, and prints the manifests with which a cluster
// asks it. What a delete breaks is internal/impact's business; what is opted
// in, who may delete anyway, and what is allowed when the guard does not know,
// is decided here. Whatever goes wrong in the guard itself, the delete is
// allowed: nobody is to be kept from their cluster by a broken guard. Nothing
// here writes to the API, and contents of Secrets and ConfigMaps do not enter.
package guard
