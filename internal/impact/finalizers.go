// SPDX-License-Identifier: Apache-2.0

package impact

func judgeFinalizers(*Case) []Consequence { return nil }
