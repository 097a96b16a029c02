package adminapi

import (
	"context"
	"errors"
	"net/http"

	"kici/internal/core/adminwire"
	"kici/internal/server/cache"
)

// Artifacts finds what runs left behind.
type Artifacts interface {
	Artifacts(ctx context.Context, runID string) ([]cache.Artifact, error)
	ArtifactLink(ctx context.Context, runID, name string) (a cache.Artifact, link string, err error)
}

var errNoArtifacts = refuse(http.StatusServiceUnavailable, "Artifact storage not configured on this orchestrator")

// listArtifacts gives all artifacts of a run at once: their number is bounded.
func (a *API) listArtifacts(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	if a.Artifacts == nil {
		return answer{}, errNoArtifacts
	}
	list, err := a.Artifacts.Artifacts(r.Context(), run.RunID)
	if err != nil {
		return answer{}, err
	}
	out := adminwire.ArtifactList{Artifacts: make([]adminwire.Artifact, len(list))}
	for i, one := range list {
		out.Artifacts[i] = artifactOf(one)
	}
	return ok(out)
}

// linkArtifact answers with a link rather than with the bytes, which need not come through this server. The name stands in
// the query: it may be any text, and a path would be tidied.
func (a *API) linkArtifact(r *http.Request) (answer, error) {
	run, err := a.theRun(r)
	if err != nil {
		return answer{}, err
	}
	if a.Artifacts == nil {
		return answer{}, errNoArtifacts
	}
	name := r.URL.Query().Get("name")
	if name == "" {
		return answer{}, invalid(problem("name", "required", "the name of an artifact is required"))
	}
	found, link, err := a.Artifacts.ArtifactLink(r.Context(), run.RunID, name)
	if errors.Is(err, cache.ErrNotFound) {
		return answer{}, gone("Artifact not found")
	}
	if err != nil {
		return answer{}, err
	}
	return ok(adminwire.ArtifactLink{Artifact: artifactOf(found), DownloadURL: link})
}

func artifactOf(a cache.Artifact) adminwire.Artifact {
	return adminwire.Artifact{JobID: a.JobID, Name: a.Name, SizeBytes: a.Size, SHA256: orNull(a.Hash), CreatedAt: adminwire.At(a.CreatedAt),
		ExpiresAt: adminwire.At(a.ExpiresAt)}
}
