// SPDX-License-Identifier: Apache-2.0

package impact_test

import "testing"

func TestStorage(t *testing.T) {
	judged(t, []string{"claim-gone", "volume-gone", "storage-class-gone", "driver-gone", "detached"}, []row{
		{
			name: "a claim whose volume goes with it", delete: "persistentvolumeclaim/shop/data-db-0",
			want: []string{
				"Breaks claim-gone: the data of PersistentVolumeClaim shop/data-db-0, which StatefulSet shop/db (1 pod running) mounts, is deleted with PersistentVolume pv-db",
			},
			hits:   []string{"StatefulSet shop/db (1 pod running)"},
			detail: []string{"It goes only when no pod mounts it any more: until then it hangs in deletion, kubectl waits, and no new pod may mount it."},
		},
		{
			name: "a claim whose volume stays", delete: "persistentvolumeclaim/shop/kept",
			want: []string{
				"Breaks claim-gone: PersistentVolumeClaim shop/kept is cut off from its data: it stays on PersistentVolume pv-kept, which no new claim gets by itself",
			},
		},
		{
			name: "a claim without a volume, for which a pod waits", delete: "persistentvolumeclaim/shop/waiting",
			want: []string{
				"Breaks claim-gone: ReplicaSet shop/by-itself (1 pod running) can start no pod any more: PersistentVolumeClaim shop/waiting goes",
			},
			hits: []string{"ReplicaSet shop/by-itself (1 pod running)"},
		},
		{
			name: "the same with the pod", delete: "persistentvolumeclaim/shop/waiting replicaset/shop/by-itself",
			want: []string{
				"Note claim-gone: PersistentVolumeClaim shop/waiting goes; it has no volume",
			},
		},
		{
			name: "a claim whose volume is not there", delete: "persistentvolumeclaim/shop/strange",
			want: []string{
				"Breaks claim-gone: the data of PersistentVolumeClaim shop/strange, which Cluster shop/pg (1 pod running) mounts, may be deleted with PersistentVolume pv-unseen",
			},
			hits: []string{"Cluster shop/pg (1 pod running)"},
		},
		{
			name: "a volume in use", delete: "persistentvolume/pv-db",
			want: []string{
				"Breaks volume-gone: PersistentVolumeClaim shop/data-db-0, which StatefulSet shop/db (1 pod running) mounts, loses its volume pv-db",
			},
			hits:   []string{"StatefulSet shop/db (1 pod running)"},
			detail: []string{"It goes only when its claim does: until then it hangs in deletion, and kubectl waits. What is on it stays: the reclaim policy counts when a claim goes."},
		},
		{
			name: "a volume that is claimed", delete: "persistentvolume/pv-kept",
			want: []string{
				"Breaks volume-gone: PersistentVolumeClaim shop/kept loses its volume pv-kept",
			},
		},
		{
			name: "a volume with its claim", delete: "persistentvolume/pv-kept persistentvolumeclaim/shop/kept",
			want: []string{
				"Breaks claim-gone: PersistentVolumeClaim shop/kept is cut off from its data: it stays on PersistentVolume pv-kept, which no new claim gets by itself",
			},
		},
		{
			name: "a volume whose claim is gone", delete: "persistentvolume/pv-released",
			want: []string{
				"Note volume-gone: PersistentVolume pv-released goes; no claim is bound to it",
			},
		},
		{
			name: "a volume that nobody claimed", delete: "persistentvolume/pv-free",
			want: []string{
				"Note volume-gone: PersistentVolume pv-free goes; no claim is bound to it",
			},
		},
		{
			name: "a class of which a StatefulSet makes claims", delete: "storageclass/fast",
			want: []string{
				"Breaks storage-class-gone: StatefulSet shop/db gets no new volume: it is of StorageClass fast",
			},
			hits: []string{"StatefulSet shop/db"},
		},
		{
			name: "a class of which all claims have their volume", delete: "storageclass/slow",
			want: []string{
				"Note storage-class-gone: no claim that waits, and no StatefulSet, is of StorageClass slow",
			},
		},
		{
			name: "the default class, for which a claim waits", delete: "storageclass/standard",
			want: []string{
				"Breaks storage-class-gone: PersistentVolumeClaim shop/waiting gets no new volume: it is of StorageClass standard",
			},
			hits:   []string{"PersistentVolumeClaim shop/waiting"},
			detail: []string{"It is the default: new claims that name no class wait until there is another one."},
		},
		{
			name: "a driver with volumes", delete: "csidriver/disk.csi.example",
			want: []string{
				"Breaks driver-gone: volumes of PersistentVolume pv-db, VolumeAttachment att-db and 2 more may not be mounted any more: CSIDriver disk.csi.example tells nodes how",
			},
			hits: []string{"PersistentVolume pv-db", "VolumeAttachment att-db", "VolumeAttachment att-idle", "VolumeAttachment att-off"},
		},
		{
			name: "a driver of volumes inside of pods", delete: "csidriver/secrets.csi.example",
			want: []string{
				"Breaks driver-gone: volumes of Deployment shop/web may not be mounted any more: CSIDriver secrets.csi.example tells nodes how",
			},
			hits: []string{"Deployment shop/web"},
		},
		{
			name: "a driver of nothing", delete: "csidriver/idle.csi.example",
			want: []string{
				"Note driver-gone: no volume is of CSIDriver idle.csi.example",
			},
		},
		{
			name: "an attachment under a pod", delete: "volumeattachment/att-db",
			want: []string{
				"Breaks detached: PersistentVolume pv-db is torn from under Pod shop/db-0 on Node worker-2",
			},
			hits: []string{"Pod shop/db-0"},
		},
		{
			name: "an attachment where no pod is", delete: "volumeattachment/att-idle",
			want: []string{
				"Note detached: PersistentVolume pv-db is detached from Node worker-1, where no pod mounts it",
			},
		},
		{
			name: "an attachment that is none", delete: "volumeattachment/att-off",
			want: []string{
				"Note detached: VolumeAttachment att-off goes; it is not attached",
			},
		},
	})
}
