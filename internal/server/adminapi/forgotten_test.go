package adminapi_test

import (
	"testing"
	"time"

	"kici/internal/server/engine"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func TestAForgottenRunSaysThatItWas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newRig(t, db)
		s.Register(t, "mine", scopedKey)
		s.Register(t, "theirs", "generic:default:other")
		for _, id := range []string{"mine", "theirs"} {
			call(t, s, s.Owner, "POST", "/api/v1/admin/runs/"+id+"/cancel", nil).want(t, 200, "")
		}
		s.Millis.Add(24 * time.Hour.Milliseconds())
		check(t, s.Engine.RetainOnce(t.Context(), engine.Retention{MaxAge: time.Hour}))
		for _, path := range []string{"runs/mine", "runs/mine/jobs", "runs/mine/structured", "runs/mine/explain", "executions/mine"} {
			call(t, s, s.Scoped, "GET", "/api/v1/admin/"+path, nil).want(t, 404,
				`{"error":"Run mine not found: it ended too long ago and was removed","errorCode":"run_forgotten"}`)
		}
		call(t, s, s.Owner, "GET", "/api/v1/admin/runs/none", nil).want(t, 404, `{"error":"Run none not found","errorCode":"run_not_found"}`)
		call(t, s, s.Owner, "GET", "/api/v1/admin/runs", nil).want(t, 200, `"total":0`)
		call(t, s, s.Scoped, "POST", "/api/v1/admin/runs/mine/rerun", nil).want(t, 410, `"errorCode":"runArchivedNotRerunnable"`)
		call(t, s, s.Scoped, "GET", "/api/v1/admin/runs/theirs", nil).want(t, 403, "single routing key")
		call(t, s, s.Scoped, "POST", "/api/v1/admin/runs/theirs/rerun", nil).want(t, 403, "single routing key")
		if s.RerunBy != "" {
			t.Error("a forgotten run was repeated")
		}
	})
}
