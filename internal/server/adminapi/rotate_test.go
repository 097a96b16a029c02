package adminapi_test

import (
	"errors"
	"fmt"
	"testing"

	"kici/internal/kit/seal"
	"kici/internal/server/store/storetest"
)

func TestKeyRotation(t *testing.T) {
	s := newRig(t, storetest.SQLite(t))
	const path = "/api/v1/admin/rotate-key"
	call(t, s, s.Admin, "POST", path, nil).want(t, 403, "does not have permission")
	call(t, s, s.Scoped, "POST", path, nil).want(t, 403, "unscoped")
	if s.RotatedBy.UserID != "" {
		t.Error("rotated for somebody who may not")
	}
	call(t, s, s.Owner, "POST", path, nil).want(t, 200, `{"reEncrypted":7,"reEncryptedConfigs":0,"skippedConfigs":0,"reEncryptedRunKeys":0,"skippedRunKeys":1,`)
	if s.RotatedBy.UserID == "" || s.RotatedBy.Role != "owner" {
		t.Errorf("rotated by %+v", s.RotatedBy)
	}
	s.RotateErr = fmt.Errorf("decrypt org:scope:KEY: %w", seal.ErrUnreadable)
	call(t, s, s.Owner, "POST", path, nil).want(t, 500, "no secret was changed: decrypt org:scope:KEY")
	s.RotateErr = errors.New("planted cause")
	call(t, s, s.Owner, "POST", path, nil).want(t, 500, `{"error":"Internal server error"}`)
	s.API.Rotation = nil
	call(t, s, s.Owner, "POST", path, nil).want(t, 503, "Secret store not configured")
}
