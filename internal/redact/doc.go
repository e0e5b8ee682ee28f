// SPDX-License-Identifier: Apache-2.0

// Package redact leaves out what must not be known: of objects of the API by
// their fields, of any other text by how secrets look in it.
//
// What is left out cannot be got back: a text stands for it that says how long
// it was, roughly. Where a text comes from, and who may see it, is not known
// here; clients and files may not enter.
package redact

// text is a field that is one.
func text(fields map[string]any, key string) string {
	value, _ := fields[key].(string)
	return value
}
