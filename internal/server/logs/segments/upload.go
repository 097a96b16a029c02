package segments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"kici/internal/kit/service"
)

const (
	uploadPeriod = 5 * time.Second  // how often segments are looked at that are not full; full ones go at once
	uploadPause  = 30 * time.Second // how long an object store is left alone that has failed
)

// Upload is the loop that brings sealed segments to the object store.
func (s *Store) Upload(ctx context.Context) error {
	var again time.Time // no upload before it
	return service.Every(ctx, s.Log, "log upload", uploadPeriod, s.owed, func(ctx context.Context) error {
		err := s.seal(s.Age)
		if time.Now().Before(again) {
			return err
		}
		failed := s.upload(ctx)
		if failed != nil {
			again = time.Now().Add(uploadPause)
		}
		return errors.Join(err, failed)
	})
}

// Flush seals what is being written and uploads all there is, as far as ctx lets it. What is left stays safe in the data
// folder, and the next start goes on with it.
func (s *Store) Flush(ctx context.Context) error {
	return errors.Join(s.seal(0), s.upload(ctx))
}

// seal ends the segments that were begun that long ago.
func (s *Store) seal(age time.Duration) error {
	var errs []error
	for _, w := range s.open() {
		errs = append(errs, w.sealOld(age))
	}
	return errors.Join(errs...)
}

func (s *Store) open() (writers []*Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writers {
		writers = append(writers, w)
	}
	return writers
}

// owe says that the data folder holds something of a log that has to be uploaded one day.
func (s *Store) owe(log string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.debts[log] = struct{}{}
}

// settled takes a log off the list, before it is looked at: whoever begins a segment meanwhile puts it back.
func (s *Store) settled(log string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.debts, log)
}

// upload uploads what is sealed. It ends with the first failure, since the next one would be the same.
func (s *Store) upload(ctx context.Context) error {
	s.mu.Lock()
	logs := make([]string, 0, len(s.debts))
	for log := range s.debts {
		logs = append(logs, log)
	}
	s.mu.Unlock()
	slices.Sort(logs)
	for _, log := range logs {
		if err := s.uploadLog(ctx, log); err != nil {
			s.unsent.Add(1)
			return fmt.Errorf("upload log %s: %w", log, err)
		}
	}
	return nil
}

func (s *Store) uploadLog(ctx context.Context, log string) (err error) {
	s.settled(log)
	left := false
	defer func() {
		if left || err != nil {
			s.owe(log)
		}
	}()
	// The list comes first. A segment that is begun after it is not in it; one that is in it and not being written has
	// got all that it ever will.
	segments, err := s.localSegments(log)
	if err != nil {
		return err
	}
	active := s.activeSegment(log)
	for _, g := range segments {
		if g.local() == active {
			left = true
			continue
		}
		if err := s.uploadSegment(ctx, log, g); err != nil {
			return err
		}
	}
	if !left {
		s.tidy(log)
	}
	return nil
}

// activeSegment is the name of the segment of a log that is being written, "" for none.
func (s *Store) activeSegment(log string) string {
	if w := s.writer(log); w != nil {
		return w.active()
	}
	return ""
}

// uploadSegment uploads one segment and then deletes the file. A segment that went up before a kill goes up again under
// the same name with the same bytes.
func (s *Store) uploadSegment(ctx context.Context, log string, g segment) error {
	name := path.Join(log, g.local())
	var err error
	if g.to, err = s.recoveredEnd(log, g); err != nil {
		return err
	}
	if g.size() > 0 { // else it was begun and nothing in it was ever acknowledged
		f, err := s.Root.Open(name)
		if err != nil {
			return err
		}
		n, err := s.Objects.Put(ctx, path.Join(log, g.object()), sized{io.NewSectionReader(f, 0, g.size())})
		if err == nil && n != g.size() {
			err = fmt.Errorf("the object store took %d of %d bytes", n, g.size())
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		s.uploaded.Add(1)
		s.listings.changed(log)
	}
	return s.Root.Remove(name)
}

// sized is a reader that tells how much it has, so that an object store needs no buffer to find out.
type sized struct{ *io.SectionReader }

// Len is the number of bytes.
func (s sized) Len() int { return int(s.Size()) }

// tidy removes the folders of a log of which nothing is left here. One that is not empty, or that a new segment has just
// made again, refuses.
func (s *Store) tidy(log string) {
	for folder := log; folder != "." && s.Root.Remove(folder) == nil; folder = path.Dir(folder) {
	}
}
