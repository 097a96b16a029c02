package server_test

import (
	"net/http"
	"testing"

	"kici/internal/server"
	"kici/internal/server/servertest"
	"kici/internal/server/store/storetest"
)

// TestANetworkBeforeTheDatabaseThatHangs has it take everything and pass on nothing while a job runs. Nobody is promised
// anything meanwhile, nothing is lost, and all goes on by itself.
func TestANetworkBeforeTheDatabaseThatHangs(t *testing.T) {
	t.Parallel() // it waits more than it works
	direct := storetest.PostgresURL(t)
	h := servertest.New(t, func(s *server.Settings) { s.DatabaseURL = direct })
	through, scissors := storetest.Before(t, direct)
	h.Settings.DatabaseURL = through + "&statement_timeout=1000&connect_timeout=1"
	h.Start(t)
	agent := h.Employ(t, &servertest.Agent{ID: "a", Features: careful, Hold: true})
	awaitAgent(t, h, "a")
	sha := h.Commit(t, app, servertest.Lock("build"))
	h.Push(t, app, "main", sha)
	servertest.Await(t, "the start of the job", func() bool {
		return h.Count(t, "SELECT count(*) FROM execution_jobs WHERE status = 'running'") == 1
	}, nil)

	for _, up := range []bool{true, false} {
		scissors.Hang(up)
	}
	answer, err := h.Deliver(t.Context(), servertest.Source, servertest.PushBody(app, "main", sha), "")
	if err != nil || answer.Status < http.StatusInternalServerError {
		t.Errorf("a delivery meanwhile: %+v, %v", answer, err)
	}
	agent.Release()
	scissors.Mend()
	h.AwaitRuns(t, 1)
	h.Push(t, app, "main", sha)
	h.AwaitRuns(t, 2)
	requireAllGreen(t, h, 2)
}
