# A Bigtable instance for Widerow, replicated over two zones, with an application profile for writing and one for reading.
#
#   terraform init && terraform apply -var project=my-project
#
# The tables are Widerow's to make: `widerow schema apply --store bigtable://PROJECT/INSTANCE/PREFIX?app_profile=widerow-write`.

terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0"
    }
  }
}

variable "project" {
  type        = string
  description = "The project the instance belongs to."
}

variable "instance" {
  type    = string
  default = "widerow"
}

variable "zones" {
  type        = list(string)
  default     = ["europe-west1-b", "europe-west4-a"]
  description = "One cluster in each. The first is the one that is written to."

  validation {
    condition     = length(var.zones) >= 2
    error_message = "Replication needs two zones or more."
  }
}

variable "storage" {
  type        = string
  default     = "SSD"
  description = "SSD, or HDD for archives: latest values and the catalog are read at random, which HDD is bad at."
}

variable "min_nodes" {
  type    = number
  default = 1
}

variable "max_nodes" {
  type    = number
  default = 10
}

provider "google" {
  project = var.project
}

resource "google_bigtable_instance" "widerow" {
  name                = var.instance
  display_name        = "Widerow"
  deletion_protection = true

  dynamic "cluster" {
    for_each = var.zones
    content {
      cluster_id   = "${var.instance}-${cluster.key}"
      zone         = cluster.value
      storage_type = var.storage
      autoscaling_config {
        min_nodes      = var.min_nodes
        max_nodes      = var.max_nodes
        cpu_target     = 60
        storage_target = var.storage == "HDD" ? 8192 : 2560
      }
    }
  }
}

# For `serve` and every process that writes: conditional writes are only allowed where one cluster decides.
resource "google_bigtable_app_profile" "write" {
  instance       = google_bigtable_instance.widerow.name
  app_profile_id = "widerow-write"
  description    = "Widerow: writes and the catalog"

  single_cluster_routing {
    cluster_id                 = "${var.instance}-0"
    allow_transactional_writes = true
  }

  ignore_warnings = true
}

# For processes that only read: the nearest cluster answers, and another one if that fails. It may lag by some seconds.
resource "google_bigtable_app_profile" "read" {
  instance                      = google_bigtable_instance.widerow.name
  app_profile_id                = "widerow-read"
  description                   = "Widerow: reads"
  multi_cluster_routing_use_any = true
  ignore_warnings               = true
}

output "store_url" {
  value = "bigtable://${var.project}/${var.instance}/widerow?app_profile=${google_bigtable_app_profile.write.app_profile_id}"
}
