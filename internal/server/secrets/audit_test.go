package secrets

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestTheAuditLogKeepsEachClassItsTime(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		now := start
		s := New(db, keyring(t, keyA, ""), func() time.Time { return now })
		for _, e := range [][2]string{{"resolve", "allowed"}, {"resolve_named", "allowed"}, {"resolve", "denied"}, {"setSecret", "allowed"}, {"rotateKey", "allowed"}} {
			exec(t, db, `INSERT INTO secret_audit_log (id, at, action, secret_keys, outcome) VALUES ($1, $2, $3, '[]', $4)`,
				e[0]+e[1], start.UnixMilli(), e[0], e[1])
		}
		var got []int64
		for _, days := range []int{29, 31, 179, 181, 364, 366} {
			now = start.Add(time.Duration(days) * 24 * time.Hour)
			n, err := s.PurgeAudit(t.Context(), 1)
			must(t, err)
			more, err := s.PurgeAudit(t.Context(), 10)
			must(t, err)
			got = append(got, n+more)
		}
		if d := cmp.Diff([]int64{0, 2, 0, 1, 0, 2}, got); d != "" {
			t.Error(d)
		}
	})
}
