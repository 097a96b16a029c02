package server

import (
	"context"
	"testing"

	"kici/internal/server/store"
)

func TestLogsOfWhatPeopleAndSendersDidGoInTime(t *testing.T) {
	eachServer(t, func(t *testing.T, s *Server) {
		tables := []string{"access_log", "secret_audit_log", "event_log"}
		count := func(table string) (n int) {
			if err := s.db.Read().QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := map[string]int{}
		for i, statement := range []string{
			`INSERT INTO access_log (id, at, org_id, actor_type, actor_id, action, source, outcome) VALUES ($1, $2, 'o', 'a', 'a', 'secret.set', 's', 'allowed')`,
			`INSERT INTO secret_audit_log (id, at, action, secret_keys, outcome) VALUES ($1, $2, 'setSecret', '[]', 'allowed')`,
			`INSERT INTO event_log (delivery_id, received_at, org_id, routing_key, event, source, provider, status, payload_size_bytes, payload_hash)
				VALUES ($1, $2, 'o', 'k', 'push', 's', 'local', 'processed', 1, 'h')`,
		} {
			before[tables[i]] = count(tables[i])
			for id, at := range map[string]int64{"old": 1, "new": s.clock.Millis()} {
				err := s.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) error {
					_, err := tx.ExecContext(ctx, statement, id, at)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.purgeOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			if n := count(table); n != before[table]+1 {
				t.Errorf("%s holds %d new rows, want the young one", table, n-before[table])
			}
		}
	})
}
