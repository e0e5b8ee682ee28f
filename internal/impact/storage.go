// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// lostData ranks what cannot be put back above what can.
const lostData = 100

// judgeStorage says whose data goes, and which volumes can be had no more.
func judgeStorage(c *Case) []Consequence {
	var out []Consequence
	for _, o := range c.Deleted(Claims) {
		if claim, ok := o.Content.(*corev1.PersistentVolumeClaim); ok {
			out = append(out, c.claimGone(o, claim))
		}
	}
	for _, o := range c.Deleted(Volumes) {
		if volume, ok := o.Content.(*corev1.PersistentVolume); ok {
			out = append(out, c.volumeGone(o, volume)...)
		}
	}
	for _, o := range c.Deleted(StorageClasses) {
		out = append(out, c.storageClassGone(o))
	}
	for _, o := range c.Deleted(CSIDrivers) {
		out = append(out, c.driverGone(o))
	}
	for _, o := range c.Deleted(VolumeAttachments) {
		if attachment, ok := o.Content.(*storagev1.VolumeAttachment); ok {
			out = append(out, c.detached(o, attachment))
		}
	}
	return out
}

func (c *Case) claimGone(o *Object, claim *corev1.PersistentVolumeClaim) Consequence {
	c.needUsers("who mounts them")
	q := Consequence{Severity: Breaks, ID: "claim-gone", Objects: []*Object{o}}
	users := c.users(o.Key())
	q.Affected, q.Rank = names(users), podsOf(users)
	whose := ""
	if len(users) > 0 {
		whose = ", which " + some(users) + verb(len(users), " mounts,", " mount,")
		q.Detail = append(q.Detail, "It goes only when no pod mounts it any more: until then it hangs in deletion, kubectl waits, and no new pod may mount it.")
	}
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" {
		q.Title = fmt.Sprintf("%s can start no pod any more: %s goes", some(users), o)
		if len(users) == 0 {
			q.Severity, q.Title = Note, o.String()+" goes; it has no volume"
		}
		return q
	}
	c.Need(Volumes, "whether the data goes too")
	name := "PersistentVolume " + claim.Spec.VolumeName
	v, found := c.Get(Key{Volumes, "", claim.Spec.VolumeName})
	volume, read := (*corev1.PersistentVolume)(nil), false
	if found {
		volume, read = v.Content.(*corev1.PersistentVolume)
	}
	q.Rank += lostData
	switch {
	case !read:
		q.Title = fmt.Sprintf("the data of %s%s may be deleted with %s", o, whose, name)
	case volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		q.Title = fmt.Sprintf("the data of %s%s is deleted with %s", o, whose, name)
	default:
		q.Rank -= lostData
		q.Title = fmt.Sprintf("%s%s is cut off from its data: it stays on %s, which no new claim gets by itself", o, whose, name)
	}
	return q
}

// volumeGone is of a volume whose claim stays; of others the claim tells.
func (c *Case) volumeGone(o *Object, volume *corev1.PersistentVolume) []Consequence {
	q := Consequence{Severity: Note, ID: "volume-gone", Objects: []*Object{o}, Title: o.String() + " goes; no claim is bound to it"}
	ref := volume.Spec.ClaimRef
	if ref == nil || volume.Status.Phase != corev1.VolumeBound {
		if ref != nil && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			q.Detail = []string{"The data that it retained stays where it is, and the cluster no longer knows where."}
		}
		return []Consequence{q}
	}
	key := Key{Claims, ref.Namespace, ref.Name}
	if c.GoneKey(c.State, key) {
		return nil
	}
	c.needUsers("who mounts them", Claims)
	users := c.users(key)
	q.Severity, q.Rank, q.Affected = Breaks, 1+podsOf(users), names(users)
	claim := "PersistentVolumeClaim " + ref.Namespace + "/" + ref.Name
	q.Title = fmt.Sprintf("%s loses its volume %s", claim, o.Name)
	if len(users) > 0 {
		q.Title = fmt.Sprintf("%s, which %s %s, loses its volume %s", claim, some(users), verb(len(users), "mounts", "mount"), o.Name)
	}
	q.Detail = []string{"It goes only when its claim does: until then it hangs in deletion, and kubectl waits. What is on it stays: the reclaim policy counts when a claim goes."}
	return []Consequence{q}
}

func (c *Case) storageClassGone(o *Object) Consequence {
	c.needUsers("who needs classes that go", Claims)
	q := Consequence{Severity: Note, ID: "storage-class-gone", Objects: []*Object{o}, Title: "no claim that waits, and no StatefulSet, is of " + o.String()}
	standard := isDefault(o, "storageclass.kubernetes.io/is-default-class")
	users := slices.DeleteFunc(c.users(o.Key()), func(u user) bool { return !waits(u.Object) })
	if standard {
		q.Detail = []string{"It is the default: new claims that name no class wait until there is another one."}
		for other, claim := range Contents[*corev1.PersistentVolumeClaim](c.State, Claims) {
			if c.stays(other) && waits(other) && claim.Spec.StorageClassName == nil {
				users = append(users, user{Object: other})
			}
		}
	}
	if len(users) > 0 {
		q.Severity, q.Rank, q.Affected = Breaks, len(users), names(users)
		q.Title = fmt.Sprintf("%s %s no new volume: %s of %s", some(users), verb(len(users), "gets", "get"), verb(len(users), "it is", "they are"), o)
	}
	return q
}

// waits says that something still needs a volume: a claim without one, or what
// makes claims. Volumes that are there need their class no more.
func waits(o *Object) bool {
	switch content := o.Content.(type) {
	case *corev1.PersistentVolumeClaim:
		return content.Spec.VolumeName == ""
	case *corev1.PersistentVolume, *corev1.Pod:
		return false
	}
	return true
}

func (c *Case) driverGone(o *Object) Consequence {
	c.needUsers("which volumes are of drivers that go", Volumes, VolumeAttachments)
	q := Consequence{Severity: Note, ID: "driver-gone", Objects: []*Object{o}, Title: "no volume is of " + o.String()}
	users := slices.DeleteFunc(c.users(o.Key()), func(u user) bool { return !opened(u.Object) })
	if len(users) > 0 {
		q.Severity, q.Rank, q.Affected = Breaks, len(users), names(users)
		q.Title = fmt.Sprintf("volumes of %s may not be mounted any more: %s tells nodes how", some(users), o)
	}
	return q
}

// opened says that a volume is held by somebody.
func opened(o *Object) bool {
	if v, ok := o.Content.(*corev1.PersistentVolume); ok {
		return v.Status.Phase == corev1.VolumeBound
	}
	return true
}

func (c *Case) detached(o *Object, a *storagev1.VolumeAttachment) Consequence {
	q := Consequence{Severity: Note, ID: "detached", Objects: []*Object{o}, Title: o.String() + " goes; it is not attached"}
	if !a.Status.Attached || a.Spec.Source.PersistentVolumeName == nil {
		return q
	}
	c.Need(Pods, "who mounts volumes that are detached")
	c.Need(Volumes, "which claims volumes belong to")
	volume := *a.Spec.Source.PersistentVolumeName
	users := c.mounting(volume, a.Spec.NodeName)
	if len(users) == 0 {
		q.Title = fmt.Sprintf("PersistentVolume %s is detached from Node %s, where no pod mounts it", volume, a.Spec.NodeName)
		return q
	}
	q.Severity, q.Rank, q.Affected = Breaks, lostData+len(users), names(users)
	q.Title = fmt.Sprintf("PersistentVolume %s is torn from under %s on Node %s", volume, some(users), a.Spec.NodeName)
	return q
}

// mounting are the running pods of a node that mount a volume.
func (c *Case) mounting(volume, node string) []*Object {
	v, ok := c.Get(Key{Volumes, "", volume})
	if !ok {
		return nil
	}
	content, ok := v.Content.(*corev1.PersistentVolume)
	if !ok || content.Spec.ClaimRef == nil {
		return nil
	}
	var out []*Object
	for _, r := range references.of(c.State)[Key{Claims, content.Spec.ClaimRef.Namespace, content.Spec.ClaimRef.Name}] {
		if p, ok := r.from.Content.(*corev1.Pod); ok && r.how == mounts && runs(p) && c.stays(r.from) && p.Spec.NodeName == node {
			out = append(out, r.from)
		}
	}
	return out
}
