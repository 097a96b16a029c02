package engine

import (
	"slices"
	"strings"
)

// insert is a statement that inserts rows.
type insert struct {
	head    string // up to VALUES
	columns int
}

func insertInto(table, columns string) insert {
	return insert{"INSERT INTO " + table + " (" + columns + ") VALUES", strings.Count(columns, ",") + 1}
}

// mostly inserts rows of which most leave the rare columns, the last ones, as they are by themselves. There is a statement
// without them, since each value costs as much as what is done with it.
type mostly struct {
	short, all insert
	unset      []any // what the rare columns are by themselves
}

func mostlyInto(table, always, rarely string, unset ...any) mostly {
	return mostly{insertInto(table, always), insertInto(table, always+", "+rarely), unset}
}

// of is the statement for these rows of all columns. It takes the first of their values.
func (m mostly) of(rows ...[]any) insert {
	if slices.ContainsFunc(rows, func(row []any) bool { return !slices.Equal(row[m.short.columns:], m.unset) }) {
		return m.all
	}
	return m.short
}
