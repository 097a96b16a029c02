package storetest

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"kici/internal/server/store"
)

// Scans lists what SQLite goes through from end to end to answer the queries that ask sends, in the words of its plans: a
// table, or one of its indexes. It plans alike for few rows and for many.
func Scans(t testing.TB, ask func(q store.Querier)) []string {
	t.Helper()
	p := &planner{Querier: SQLite(t).Read(), t: t}
	ask(p)
	return p.scans
}

// planner notes the plans of the queries that go through it.
type planner struct {
	store.Querier
	t     testing.TB
	scans []string
}

func (p *planner) plan(ctx context.Context, query string, args []any) {
	p.t.Helper()
	err := p.Querier.All(ctx, store.Ask{Query: "EXPLAIN QUERY PLAN " + query, Args: args, Row: func(r store.Row) error {
		var skip sql.RawBytes
		var step string
		err := r.Scan(&skip, &skip, &skip, &step)
		if strings.HasPrefix(step, "SCAN ") {
			p.scans = append(p.scans, step)
		}
		return err
	}})
	if err != nil {
		p.t.Fatalf("plan %.80q: %v", query, err)
	}
}

// QueryContext is Querier's.
func (p *planner) QueryContext(ctx context.Context, query string, args ...any) (store.Rows, error) {
	p.plan(ctx, query, args)
	return p.Querier.QueryContext(ctx, query, args...)
}

// QueryRowContext is Querier's.
func (p *planner) QueryRowContext(ctx context.Context, query string, args ...any) store.Row {
	p.plan(ctx, query, args)
	return p.Querier.QueryRowContext(ctx, query, args...)
}

// All is Querier's.
func (p *planner) All(ctx context.Context, asks ...store.Ask) error {
	for _, ask := range asks {
		p.plan(ctx, ask.Query, ask.Args)
	}
	return p.Querier.All(ctx, asks...)
}
