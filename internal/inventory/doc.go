// SPDX-License-Identifier: Apache-2.0

// Package inventory reads from an API server what a delete is judged by: which
// objects the arguments of `kubectl delete` name, and what else there is.
//
// It reads and never writes. What a delete means may not enter, that is package
// impact; nor may printing.
package inventory
