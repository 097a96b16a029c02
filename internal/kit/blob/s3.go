package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// S3 is a store in a bucket of an object store that speaks S3's protocol.
type S3 struct {
	bucket string
	prefix string // "" or with a slash at the end
	core   minio.Core
	agents *minio.Client // signs links, is never asked anything
	people *minio.Client // same
}

var _ Store = (*S3)(nil)

// partSize is what a put of unknown length holds in memory, and how much of it is sent at a time. 10,000 parts of it are
// the largest blob that can be put so.
const partSize = 16 << 20

// Put implements Store. A put that fails leaves nothing that can be seen.
func (s *S3) Put(ctx context.Context, name string, r io.Reader) (int64, error) {
	if err := checkPath(name); err != nil {
		return 0, err
	}
	size := int64(-1)
	if known, ok := r.(interface{ Len() int }); ok {
		size = int64(known.Len()) // in memory already: one request, without a buffer of a part's size
	}
	info, err := s.core.Client.PutObject(ctx, s.bucket, s.prefix+name, r, size, putOptions)
	if err != nil {
		return 0, fmt.Errorf("put blob %s: %w", name, err)
	}
	return info.Size, nil
}

// putOptions leave the payload out of the signature, as links do: TLS protects it, and many stores do not know how to
// check a payload that is signed in chunks.
var putOptions = minio.PutObjectOptions{PartSize: partSize, ContentType: "application/octet-stream", DisableContentSha256: true}

// Get implements Store.
func (s *S3) Get(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	if err := checkPath(name); err != nil {
		return nil, 0, err
	}
	body, info, _, err := s.core.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", name, s3Absence(err))
	}
	return body, info.Size, nil
}

// Stat implements Store.
func (s *S3) Stat(ctx context.Context, name string) (Info, error) {
	if err := checkPath(name); err != nil {
		return Info{}, err
	}
	info, err := s.core.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{})
	if err != nil {
		return Info{}, fmt.Errorf("look for blob %s: %w", name, s3Absence(err))
	}
	return Info{Path: name, Size: info.Size, Modified: info.LastModified}, nil
}

// List implements Store.
func (s *S3) List(ctx context.Context, folder string) ([]string, error) {
	return paths(ctx, s, folder)
}

// Walk implements Store.
func (s *S3) Walk(ctx context.Context, folder string, visit func(Info) error) error {
	folder, err := checkFolder(folder)
	if err != nil {
		return err
	}
	prefix := s.prefix
	if folder != "" {
		prefix += folder + "/"
	}
	for object := range s.core.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if object.Err != nil {
			return fmt.Errorf("walk blobs below %s: %w", folder, object.Err)
		}
		name := strings.TrimPrefix(object.Key, s.prefix)
		if checkPath(name) != nil {
			continue // somebody else's, such as the marker of a folder: it cannot be named here
		}
		if err := visit(Info{Path: name, Size: object.Size, Modified: object.LastModified}); err != nil {
			return err
		}
	}
	return context.Cause(ctx) // the listing ends without a word when its context does
}

// maxCopy is the largest blob that a store copies by one request.
const maxCopy = 5 << 30

// Move implements Store. The store copies by itself; between the copy and the removal both can be seen.
func (s *S3) Move(ctx context.Context, from, to string) error {
	if err := checkPath(to); err != nil {
		return err
	}
	info, err := s.Stat(ctx, from)
	if err != nil {
		return err
	}
	source, target := minio.CopySrcOptions{Bucket: s.bucket, Object: s.prefix + from}, minio.CopyDestOptions{Bucket: s.bucket, Object: s.prefix + to}
	if info.Size > maxCopy {
		_, err = s.core.ComposeObject(ctx, target, source)
	} else {
		_, err = s.core.Client.CopyObject(ctx, target, source)
	}
	if err != nil {
		return fmt.Errorf("move blob %s to %s: %w", from, to, s3Absence(err))
	}
	return s.Delete(ctx, from)
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, name string) error {
	if err := checkPath(name); err != nil {
		return err
	}
	if err := s.core.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}); err != nil && !errors.Is(s3Absence(err), ErrNotFound) {
		return fmt.Errorf("delete blob %s: %w", name, err)
	}
	return nil
}

// Tidy implements Store. Parts of an upload that never ended cost room and cannot be seen.
func (s *S3) Tidy(ctx context.Context, before time.Time) error {
	listing, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing when an error ends the loop
	for upload := range s.core.ListIncompleteUploads(listing, s.bucket, s.prefix, true) {
		err := upload.Err
		if err == nil && upload.Initiated.Before(before) {
			err = s.core.AbortMultipartUpload(ctx, s.bucket, upload.Key, upload.UploadID)
		}
		if err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchUpload { // some stores say so of an empty list, too
			return fmt.Errorf("tidy blob store: %w", err)
		}
	}
	return context.Cause(ctx)
}

func s3Absence(err error) error {
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return ErrNotFound
	}
	return err
}
