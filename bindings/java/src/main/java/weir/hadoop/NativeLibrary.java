package weir.hadoop;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Properties;
import java.util.UUID;

/**
 * Finds the native library in the jar by the hash of its contents, and loads it once.
 *
 * <p>It is unpacked under a name that has the hash, so that jars of several versions share a
 * directory. The bytes of a file that is there already are compared before it is used.
 */
final class NativeLibrary {
  /** A library to load instead of the jar's. */
  static final String PATH_PROPERTY = "weir.native.library";
  /** Which version this jar has, and for which system it has which library. */
  static final String INDEX = "/weir/native/index.properties";
  private static IOException failure;
  private static boolean loaded;

  private NativeLibrary() {
  }

  /** Loads it, the first time; a failure is told each time. */
  static synchronized void load() throws IOException {
    if (failure != null) {
      throw new IOException(failure.getMessage(), failure);
    }
    if (loaded) {
      return;
    }
    try {
      String own = System.getProperty(PATH_PROPERTY, "");
      Path file = own.isEmpty() ? unpacked() : Paths.get(own).toAbsolutePath();
      open(file);
      check(file);
      loaded = true;
    } catch (IOException e) {
      failure = e;
      throw e;
    }
  }

  private static void open(Path file) throws IOException {
    try {
      System.load(file.toString());
    } catch (UnsatisfiedLinkError e) {
      if (!String.valueOf(e.getMessage()).contains("another classloader")) {
        throw new IOException("the native library of Weir cannot be loaded: " + e.getMessage()
            + "; use the jar that was built for this system, or name a library by -D"
            + PATH_PROPERTY + "=FILE", e);
      }
      // The machine gives a file to one class loader: another one gets a copy.
      String name = file.getFileName().toString();
      Path copy = directory().resolve(UUID.randomUUID() + "-" + name);
      try {
        Files.copy(file, copy);
        System.load(copy.toString());
      } catch (UnsatisfiedLinkError again) {
        throw new IOException("the native library of Weir cannot be loaded: " + again.getMessage(),
            again);
      } finally {
        Files.deleteIfExists(copy);
      }
    }
  }

  private static void check(Path file) throws IOException {
    String jar = index().getProperty("version") + " " + Native.INTERFACE;
    String library;
    try {
      library = Native.version();
    } catch (UnsatisfiedLinkError e) {
      library = "another program";
    }
    if (!jar.equals(library)) {
      throw new IOException("the jar of Weir (version and interface " + jar
          + ") does not fit the native library " + file + " (" + library
          + "): use both of one release, and leave -D" + PATH_PROPERTY
          + " away to use the library in the jar");
    }
  }

  private static Properties index() throws IOException {
    Properties index = new Properties();
    try (InputStream in = NativeLibrary.class.getResourceAsStream(INDEX)) {
      if (in == null) {
        throw new IOException("this jar of Weir has no native library in it: build it by "
            + "`make java`");
      }
      index.load(in);
    }
    return index;
  }

  private static Path unpacked() throws IOException {
    String system = System.getProperty("os.name") + "-" + System.getProperty("os.arch");
    Properties index = index();
    String hash = index.getProperty(system);
    if (hash == null) {
      throw new IOException("this jar of Weir has no native library for " + system
          + ", but for " + index.stringPropertyNames() + ": build one there by `make java`");
    }
    Path file = directory().resolve("libweir_jni-" + hash + ".so");
    if (Files.exists(file) && hash.equals(hashOf(Files.readAllBytes(file)))) {
      return file;
    }
    Path fresh = directory().resolve(UUID.randomUUID() + ".so");
    String resource = "/weir/native/" + hash + "/libweir_jni.so";
    try (InputStream in = NativeLibrary.class.getResourceAsStream(resource)) {
      if (in == null) {
        throw new IOException("this jar of Weir is damaged: it has no " + resource);
      }
      Files.copy(in, fresh);
      if (!hash.equals(hashOf(Files.readAllBytes(fresh)))) {
        throw new IOException("this jar of Weir is damaged: " + resource
            + " is not what its index says; copy the jar anew");
      }
      // Others that do the same meanwhile put the same bytes there.
      Files.move(fresh, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } finally {
      Files.deleteIfExists(fresh);
    }
    return file;
  }

  /** A directory that only this user can write to. */
  private static Path directory() throws IOException {
    // The machine loads no library by a relative path.
    Path directory = Paths.get(System.getProperty("java.io.tmpdir"),
        "weir-native-" + System.getProperty("user.name")).toAbsolutePath();
    if (!Files.isDirectory(directory)) {
      try {
        Files.createDirectory(directory,
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      } catch (java.nio.file.FileAlreadyExistsException e) {
        // Another process was faster.
      }
    }
    String mode = PosixFilePermissions.toString(Files.getPosixFilePermissions(directory));
    if (!mode.equals("rwx------") || !Files.getOwner(directory).getName()
        .equals(System.getProperty("user.name"))) {
      throw new IOException(directory + " is not a directory of this user's alone (" + mode
          + "): remove it, or set -Djava.io.tmpdir");
    }
    return directory;
  }

  private static String hashOf(byte[] bytes) {
    try {
      StringBuilder hash = new StringBuilder();
      for (byte b : MessageDigest.getInstance("SHA-256").digest(bytes)) {
        hash.append(String.format("%02x", b));
      }
      return hash.toString();
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every Java has SHA-256", e);
    }
  }
}
