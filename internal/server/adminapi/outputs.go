package adminapi

import (
	"net/http"

	"kici/internal/core/adminwire"
	"kici/internal/server/auth"
	"kici/internal/server/secrets"
)

// masked stands for a value that is not shown.
const masked = "***"

// showRunKey tells whether there is a key for which agents seal secret outputs of the run. A run that has ended has none.
func (a *API) showRunKey(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	if _, err := a.vault(); err != nil {
		return answer{}, err
	}
	at, exists, err := a.Engine.RunKeyMade(r.Context(), run.RunID)
	if err != nil {
		return answer{}, err
	}
	out := adminwire.RunKey{Exists: exists}
	if exists {
		out.CreatedAt = adminwire.At(at)
	}
	return ok(out)
}

// listSecretOutputs lists the secret outputs of a run as long as it goes on, and shows their values to those who may see
// them and say that they want to. Either is noted, the attempt too.
func (a *API) listSecretOutputs(r *http.Request) (answer, error) {
	action, reveal := "secret.list.read", truthy(r, "reveal")
	if reveal {
		action = "secret.reveal"
	}
	found, err := a.secretOutputs(r, reveal)
	a.noteEntry(r, a.judged(entry(r, action, "run", r.PathValue("run")), err))
	if err != nil {
		return answer{}, err
	}
	out := adminwire.SecretOutputList{Outputs: make([]adminwire.SecretOutput, len(found))}
	for i, o := range found {
		out.Outputs[i] = secretOutput(o, reveal)
	}
	return ok(out)
}

func (a *API) secretOutputs(r *http.Request, reveal bool) ([]secrets.Output, error) {
	if role := caller(r).Role; reveal && !role.May(auth.SecretReveal) {
		return nil, refuse(http.StatusForbidden, role.Lacks(auth.SecretReveal))
	}
	run, err := a.theRun(r)
	if err != nil {
		return nil, err
	}
	vault, err := a.vault()
	if err != nil {
		return nil, err
	}
	key := r.URL.Query().Get("outputKey")
	if reveal {
		return vault.Reveal(r.Context(), actor(r), run.RunID, key)
	}
	return vault.Outputs(r.Context(), run.RunID, key)
}

// secretOutput is an output in the API's form. What could not be read stays masked and says why.
func secretOutput(o secrets.Output, reveal bool) adminwire.SecretOutput {
	out := adminwire.SecretOutput{ID: o.JobID + ":" + o.Key, JobID: o.JobID, OutputKey: o.Key, CreatedAt: adminwire.At(o.CreatedAt),
		Value: masked, Masked: true}
	switch {
	case o.Err != nil:
		out.RevealError = o.Err.Error()
	case reveal:
		out.Value, out.Masked = o.Value, false
	}
	return out
}
