package engine

import (
	"slices"
	"strings"

	"kici/internal/server/store"
)

// insert is a statement that inserts rows.
type insert struct {
	head    string // up to VALUES
	columns int
	one     string // the statement for one row
}

func insertInto(table, columns string) insert {
	head, n := "INSERT INTO "+table+" ("+columns+") VALUES", strings.Count(columns, ",")+1
	return insert{head, n, head + " " + store.Places(1, 1, "("+strings.TrimSuffix(strings.Repeat("$%d, ", n), ", ")+")")}
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
